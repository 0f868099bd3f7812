"""Which stack a command talks to: options, else the environment, else the newest local stack that is running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from connectors.settings import Settings
from infra.stack_options import StackError
from infra.stack_registry import newest_stack

KafkaOption = Annotated[str | None, typer.Option("--kafka", help="host:port of the broker", rich_help_panel="Stack")]
ClickHouseOption = Annotated[str | None, typer.Option("--clickhouse", help="URL of ClickHouse")]
EmbeddingsOption = Annotated[str | None, typer.Option("--embeddings", help="URL of the embedding endpoint, with /v1")]
ObjectsOption = Annotated[str | None, typer.Option("--objects", help="URL of the object store")]
PrefixOption = Annotated[str | None, typer.Option("--prefix", help="Topic prefix")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output")]


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses of a stack, from wherever they came."""

    kafka: str
    clickhouse: str
    embeddings: str
    objects: str
    prefix: str
    found_by: str

    def topic(self, name: str) -> str:
        """Full name of a topic."""
        return self.prefix + name


def find(
    kafka: str | None = None,
    clickhouse: str | None = None,
    embeddings: str | None = None,
    objects: str | None = None,
    prefix: str | None = None,
    *,
    need: str = "kafka",
) -> Target:
    """The stack to talk to.

    Parameters
    ----------
    need : str
        The address without which the command can't work.

    Raises
    ------
    StackError
        There is none.
    """
    given = {"kafka": kafka, "clickhouse": clickhouse, "embeddings": embeddings, "objects": objects, "prefix": prefix}
    settings = Settings()
    local = newest_stack()
    fields: dict[str, str] = {}
    sources: list[str] = []
    for name, value in given.items():
        if value is not None:
            fields[name] = value
            sources.append("options")
        elif name in settings.model_fields_set:
            fields[name] = str(getattr(settings, name))
            sources.append("environment")
        elif local is not None and getattr(local, name):
            fields[name] = getattr(local, name)
            sources.append("local stack")
        else:
            fields[name] = "" if name != "prefix" else "mnemolog."
    if not fields[need]:
        raise StackError(f"no stack found: start one with `mnemolog up`, give --{need}, or set MNEMOLOG_{need.upper()}")
    return Target(**fields, found_by=sources[0] if sources else "defaults")
