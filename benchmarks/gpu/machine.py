"""Where something was measured: device, driver, versions, commit, command."""

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import torch

from .peer import version_of


def about(device: torch.device, commit: str | None) -> dict[str, Any]:
    """Everything that a reader needs to run it again."""
    found: dict[str, Any] = {
        "commit": commit or said("git", "rev-parse", "HEAD") or "unknown",
        "command": " ".join(sys.argv[1:]),
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version_of(name) for name in ("torch", "triton", "transformers")},
        "python": sys.version.split()[0],
        "device": "the host, kernels interpreted",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = properties.name
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["multiprocessors"] = properties.multi_processor_count
        found["memory"] = properties.total_memory
        found["driver"] = said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "unknown"
        found["cuda"] = torch.version.cuda
        found["clocks"] = said("nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,clocks.max.sm", "--format=csv,noheader")
    return found


def said(*command: str) -> str | None:
    """What a command prints; None where it is not there or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
