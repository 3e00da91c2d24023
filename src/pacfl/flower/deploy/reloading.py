"""A renewed certificate of the server is used for new connections at once: nothing has to be restarted."""

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SECONDS: Final = 5.0  # between two looks at the file
log = logging.getLogger("flwr")


def reloading(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """The function that reads certificate and key for uvicorn: they are read again when the first has changed."""

    def created(certfile: Any, keyfile: Any, *others: Any, **options: Any) -> ssl.SSLContext:
        context = create(certfile, keyfile, *others, **options)
        watching = threading.Thread(
            target=_watch, args=(context, Path(certfile).absolute(), Path(keyfile).absolute()), daemon=True
        )
        watching.start()
        return context

    return created


def _watch(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    used = certificate.stat().st_mtime_ns
    while True:
        time.sleep(SECONDS)
        used = reload(context, certificate, key, used)


def reload(context: ssl.SSLContext, certificate: Path, key: Path, used: int) -> int:
    """Read the two again if the certificate is not that of the time `used`; the time of the one in use."""
    try:
        changed = certificate.stat().st_mtime_ns
        if changed != used:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                certificate, key
            )  # an invalid pair stays out
            context.load_cert_chain(certificate, key)
            log.info("the certificate in %s is used from now on", certificate)
    except (OSError, ssl.SSLError) as error:
        log.warning("the certificate in %s cannot be used: %s; the former one stays in use", certificate, error)
        return used
    return changed
