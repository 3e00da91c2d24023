from pacfl.cli import main

main()
