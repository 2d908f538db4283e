"""Layers here that do what a published layer in Python does, for nets whose module is not at hand."""

from __future__ import annotations

import re
from typing import Any

import yaml

from minicaffe.errors import SpecError, reason

# Of py-faster-rcnn's configuration, by phase: regions before and after suppression.
TOPS = {"TRAIN": (12000, 2000), "TEST": (6000, 300)}


def stand_in(
    module: str, name: str, param_str: str, phase: str
) -> tuple[str, dict[str, Any]] | None:
    """The type of a layer here that does the same, and its keys; None if there is none.

    Of rpn.proposal_layer, ProposalLayer, that is Proposal, with the settings of py-faster-rcnn as published
    (16 pixels at least, overlap 0.7). Raises SpecError for a param_str that it cannot be made of.

    >>> stand_in("rpn.proposal_layer", "ProposalLayer", "'feat_stride': 16", "TEST")[1]["scale"]
    (8.0, 16.0, 32.0)
    """
    if (module, name) not in (
        ("rpn.proposal_layer", "ProposalLayer"),
        ("pylayer.proposal_layer", "ProposalLayer"),
    ):
        return None
    try:
        given = yaml.safe_load(re.sub(r"!!python/tuple\s*", "", param_str)) or {}
        before, after = TOPS[phase]
        return "Proposal", {
            "feat_stride": int(given["feat_stride"]),
            "ratio": tuple(map(float, given.get("ratios", (0.5, 1, 2)))),
            "scale": tuple(map(float, given.get("scales", (8, 16, 32)))),
            "pre_nms_topn": before,
            "post_nms_topn": after,
        }
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(
            f"param_str: expected 'feat_stride': 16 and the like: {reason(error)}"
        ) from None
