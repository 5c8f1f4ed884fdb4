"""`srdma ca`: a certificate authority in a folder, and identities by it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from . import identity
from .cli_output import console, print_json

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the CA.")]
Days = Annotated[float, typer.Option(help="Days of validity.")]
Algorithm = Annotated[str, typer.Option(help="p256 or ed25519.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def init(
    folder: Folder,
    name: Annotated[str, typer.Option(help="Name of the CA.")] = "srdma CA",
    days: Days = identity.CA_DAYS,
    algorithm: Algorithm = "p256",
    force: Force = False,
    json: Json = False,
) -> None:
    """Make a CA: DIR/ca.pem for everybody, DIR/ca.key for nobody else."""
    cert = identity.create_ca(
        folder, name, days=days, algorithm=cast(identity.Algorithm, algorithm), force=force
    )
    _tell({"certificate": str(cert), "key": str(folder / identity.CA_KEY)}, json)


def issue(
    folder: Folder,
    uri: Annotated[str, typer.Option("--id", metavar="URI", help="spiffe://example.org/host-a")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="PREFIX", help="Writes PREFIX.pem and PREFIX.key  [default: the"
                     " last part of the URI]"),
    ] = None,
    days: Days = identity.DAYS,
    algorithm: Algorithm = "p256",
    force: Force = False,
    json: Json = False,
) -> None:  # fmt: skip
    """Issue a certificate for one identity by the CA in DIR."""
    identity.check_identity_uri(uri)
    cert, key = identity.issue(
        folder,
        uri,
        out or Path(uri.rstrip("/").rsplit("/", 1)[-1]),
        validity=identity.Validity(days),
        algorithm=cast(identity.Algorithm, algorithm),
        force=force,
    )
    _tell({"identity": uri, "certificate": str(cert), "key": str(key)}, json)


def _tell(made: dict[str, str], json: bool) -> None:
    if json:
        print_json(made)
        return
    for what, value in made.items():
        console().print(f"{what:>12}  {value}", markup=False)
