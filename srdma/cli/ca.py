"""`srdma ca`: a certificate authority in a folder, and the identities that it issues."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, cast

import typer

from srdma import identity
from srdma.cli.options import Making
from srdma.cli.output import console, print_json

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the CA.")]


def init(
    folder: Folder,
    how: Making,
    name: Annotated[str, typer.Option(help="Name of the CA.")] = "srdma CA",
) -> None:
    """Create a CA: DIR/ca.pem is public, DIR/ca.key must stay secret."""
    algorithm = cast(identity.Algorithm, how.algorithm)
    days = identity.CA_DAYS if how.days is None else how.days
    cert = identity.create_ca(folder, name, days=days, algorithm=algorithm, force=how.force)
    _tell({"certificate": str(cert), "key": str(folder / identity.CA_KEY)}, how.json)


def issue(
    folder: Folder,
    how: Making,
    uri: Annotated[str, typer.Option("--id", metavar="URI", help="spiffe://example.org/host-a")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX",
            help="Write PREFIX.pem and PREFIX.key  [default: the last part of the URI]",
        ),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="IP", help="GID of its worker, as a further name. Repeatable."),
    ] = None,
) -> None:
    """Issue a key and a certificate for one identity with the CA in DIR."""
    try:
        addresses = [ipaddress.ip_address(each) for each in address or []]
    except ValueError as error:
        raise identity.IdentityError(f"--address: {error}") from None
    identity.check_identity_uri(uri)
    cert, key = identity.issue(
        folder,
        identity.Names(uri, tuple(addresses)),
        out or Path(uri.rstrip("/").rsplit("/", 1)[-1]),
        validity=identity.Validity(identity.DAYS if how.days is None else how.days),
        algorithm=cast(identity.Algorithm, how.algorithm),
        force=how.force,
    )
    _tell({"identity": uri, "certificate": str(cert), "key": str(key)}, how.json)


def _tell(made: dict[str, str], json: bool) -> None:
    if json:
        print_json(made)
        return
    for what, value in made.items():
        console().print(f"{what:>12}  {value}", markup=False)
