import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # the small federation lies beside the folders of tests
