"""Where the true reward turns over, by hand."""

import pytest

from postgrad.runs.overoptimisation import turning_point


def test_the_turning_point():
    def curve(*true):
        return [{"step": 20 * i, "kl": float(i * i), "distance": float(i), "true": t, "proxy": i / 10}
                for i, t in enumerate(true)]

    found = turning_point(curve(0.0, 1.0, 2.0, 1.0, 0.0, 0.0, 0.0))
    assert ((found["step"], found["distance"], found["peak"], found["end"])
            == (40, 2.0, pytest.approx(4 / 3), 0.0))
    assert found["fall"] == 1.0 and found["proxy_at_end"] > found["proxy_at_peak"]
    assert turning_point(curve(-1.0, 0.0, 1.0, 1.0, 1.0))["fall"] == 0
