"""The embedded broker filled from the archive of earlier runs, before any role starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from connectors.objects import open_objects
from infra.stack_options import Addresses, StackError
from streams.restore import has_archive, restore
from streams.segment_store import SegmentStore


def restore_embedded(addresses: Addresses, partitions: int, say: Callable[[str], None]) -> None:
    """Write all that was archived under the stack's prefix into its empty broker; nothing archived: nothing to do.

    Raises
    ------
    StackError
        The archive has another partition count than was asked for.
    """
    asyncio.run(_restore(addresses, partitions, say))


async def _restore(addresses: Addresses, partitions: int, say: Callable[[str], None]) -> None:
    objects = open_objects(addresses.objects)
    if not await has_archive(objects, addresses.prefix):
        return
    archived = await SegmentStore(objects, f"{addresses.prefix}journal").partitions()
    if archived != partitions:
        raise StackError(
            f"what was kept in {addresses.data} has {archived} partitions, got --partitions {partitions}: start with "
            f"--partitions {archived}, name another directory with --data, or use --temporary"
        )
    done = await restore(objects, addresses.kafka, addresses.prefix, embedded=True, say=say)
    say(f"restored {done.written} records in {done.seconds:.1f} s")
