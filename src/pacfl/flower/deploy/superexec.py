"""Flower's SuperExec, which starts the processes of apps: `python -m pacfl.flower.deploy.superexec`.

Options are those of flower-superexec. It starts approved apps only, and hands them the token of their task in a file
without a name: Flower puts it on the command line, where all users of the machine see it.
"""

import subprocess
import tempfile
from importlib import import_module
from pathlib import Path

from flwr.supercore.cli.flower_superexec import flower_superexec
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND, TaskType
from flwr.supercore.superexec.executor import ExecutionSpec, LaunchResult
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.plugin import AutoExecPlugin

from pacfl.flower.deploy.approval import approved
from pacfl.flower.deploy.superlink import replace


class ApprovedExecutor(SubprocessExecutor):
    """Starts the processes of approved apps."""

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start a process for a task, or refuse to."""
        if spec.fab_hash not in approved(Path.cwd()):
            return LaunchResult.failed(f"The app with SHA-256 {spec.fab_hash} is not approved in {Path.cwd()}.")
        tls = ["--insecure"] if spec.insecure else ["--root-certificates", spec.root_certificates_path]
        output = subprocess.DEVNULL if spec.suppress_output else None
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(spec.token.encode())
            file.seek(0)
            command = [TASK_TYPE_TO_COMMAND[spec.task_type], "--runtime-api-address", spec.runtime_api_address]
            command += ["--token-file", f"/dev/fd/{file.fileno()}", "--parent-pid", str(spec.parent_pid), *tls]
            subprocess.Popen(command, stdout=output, stderr=output, pass_fds=[file.fileno()])
        return LaunchResult.accepted()


def main() -> None:
    """Run the SuperExec until its companion ends."""
    replace(
        import_module("flwr.supercore.superexec.run_superexec"), "get_executor", lambda *_, **__: ApprovedExecutor()
    )
    replace(AutoExecPlugin, "supported_task_types", frozenset({TaskType.SERVER_APP, TaskType.CLIENT_APP}))
    flower_superexec()


if __name__ == "__main__":
    main()
