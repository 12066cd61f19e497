"""Where the true reward turns over as a policy is trained against a proxy (Gao et al. 2023,
arXiv:2210.10760)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SPAN = 20  # optimizer steps on either side over which a curve is smoothed: one noisy evaluation is no peak


def turning_point(curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The peak of the true reward and the fall after it, of means over SPAN steps on either side.

    curve: evaluations in order, each with step, kl, distance, proxy and true.
    fall: from the peak to the end, as a share of the gain up to the peak. A reward has no zero of its own;
    Gao et al. count from the start, where R = 0.
    """
    def smooth(name: str, i: int) -> float:
        near = [p[name] for p in curve if abs(p["step"] - curve[i]["step"]) <= SPAN]
        return sum(near) / len(near)

    true = [smooth("true", i) for i in range(len(curve))]
    top = max(range(len(curve)), key=true.__getitem__)
    fall, gained, last = true[top] - true[-1], true[top] - curve[0]["true"], len(curve) - 1
    return {"step": curve[top]["step"], "kl": curve[top]["kl"], "distance": curve[top]["distance"],
            "peak": true[top], "end": true[-1],
            "fall": fall / gained if gained > 0 else float(fall > 0), "proxy_at_peak": smooth("proxy", top),
            "proxy_at_end": smooth("proxy", last)}
