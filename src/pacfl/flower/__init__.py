"""PACFL as a Flower app: a ServerApp and a ClientApp, and the simulation of experiments."""

import os

# The data of a federation are confidential: no telemetry unless the user sets it. Flower and Ray read these variables
# when they are imported.
for name, value in {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}.items():
    os.environ.setdefault(name, value)
