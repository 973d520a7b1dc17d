"""What a server's ticket says: which feed, and which of its ranks, it is for."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

# What a request may have otherwise, and its batches are the same.
NO_MATTER = {"access", "memory_limit", "prefetch", "warn_after"}


def difference(ticket: str, own: str) -> str | None:
    """Why a ticket is not one of the stream of another ticket, or ``None`` if it is."""
    parts, mine = ticket.split("."), own.split(".")
    if len(parts) not in (3, 5) or parts[0] != mine[0]:
        return "the state's ticket is none: give what state_dict() returned"
    if parts[1] == mine[1]:
        if parts[2] == mine[2]:
            return None
        return (
            "the state is of a server that has another key: servers that take each other's states, or their "
            "own after a restart, have one key file (Server(key=...), percolator serve --key)"
        )
    theirs, ours = content(parts[1]), content(mine[1])
    for name in theirs | ours:
        if name not in NO_MATTER and theirs.get(name) != ours.get(name):
            return (
                f"the state is of a loader with {name}={theirs.get(name)}, and this one has {name}="
                f"{ours.get(name)}: a server goes on with the same feed, as the same rank"
            )
    return None


def content(part: str) -> dict[str, Any]:
    """What a ticket is for: the options of the feed, who shares it, and the rank."""
    try:
        stream = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        request = stream.pop("request")
        feed = request.pop("feed")
        return {**stream, "world_size": len(feed.pop("devices")), **request, **feed}
    except (AttributeError, binascii.Error, KeyError, TypeError, ValueError):
        return {"ticket": "unreadable"}
