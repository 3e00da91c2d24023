"""The ServerApp of a deployed federation."""

from flwr.serverapp import ServerApp

from pacfl.flower.server import federate

app = ServerApp()
app.main()(federate)
