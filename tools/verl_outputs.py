"""What verl's own functions make of the batches of tests/training/verl_test.py: tests/training/verl.json.

    python tools/verl_outputs.py [place=build/verl]     an environment of verl's own in PLACE, made unless it
                                                        is there; then its functions are called in it

Losses come with their gradient with respect to the log-probs, advantages as they are; of the sampled tokens
alone, in the order of the batch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "proofs"))
import harness  # noqa: E402

VERSION = "0.9.1"
PACKAGES = ["--no-deps", f"verl=={VERSION}", "omegaconf", "antlr4-python3-runtime==4.9.3", "tensordict",
            "codetiming", "cloudpickle", "orjson", "hydra-core", "cachetools", "ray", "msgpack", "pyvers"]
OUT = harness.HOME / "tests" / "training" / "verl.json"


def outputs() -> dict:
    """Called in verl's environment."""
    import numpy
    import torch
    from verl.trainer.ppo import core_algos as verl
    from verl.workers.config import ActorConfig, PolicyLossConfig
    from verl_test import ADVANTAGES, GROUP, LOSSES, POLICY, PROMPT, REWARD, rollouts, row_of

    def actor(settings: dict) -> ActorConfig:
        own = {k: settings[k] for k in settings.keys() & PolicyLossConfig.__dataclass_fields__.keys()}
        return ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1,
                           policy_loss=PolicyLossConfig(**own),
                           **{k: v for k, v in settings.items() if k not in own})

    def loss(name: str) -> dict:
        function, mode, settings, kl = LOSSES[name]
        batch = rollouts(row_of(name))
        logp = POLICY.logp(batch.tokens, batch.mask)[0]
        logp, old, ref, adv, sampled = (
            x.detach()[:, PROMPT:] for x in (logp, batch.old_logp, batch.ref_logp, batch.adv, batch.mask))
        mask = sampled.to(logp.dtype)
        value, _ = verl.get_policy_loss_fn(function)(
            old_log_prob=old, log_prob=logp.requires_grad_(), advantages=adv, response_mask=mask,
            loss_agg_mode=mode, config=actor(settings))
        if kl:
            estimate, weight = kl
            value = value + weight * verl.agg_loss(verl.kl_penalty(logp, ref, estimate), mask, mode)
        (gradient,) = torch.autograd.grad(value, logp)
        return {"loss": value.item(), "gradient": gradient[sampled].tolist()}

    def advantages(name: str) -> list[float]:
        batch = rollouts(row_of(name))
        rewards = torch.zeros(batch.mask.shape)
        rewards[torch.arange(len(batch)), batch.lengths - 1] = torch.tensor(REWARD)
        groups = numpy.arange(len(batch)) // GROUP
        adv, _ = verl.get_adv_estimator_fn(ADVANTAGES[name])(
            token_level_rewards=rewards, response_mask=batch.mask.to(rewards.dtype), index=groups)
        return adv[batch.mask].tolist()

    torch.set_default_dtype(torch.float64)
    return {"verl": VERSION, "losses": {name: loss(name) for name in LOSSES},
            "advantages": {name: advantages(name) for name in ADVANTAGES}}


if __name__ == "__main__":
    words, settings = harness.arguments()
    if words == ["outputs"]:
        sys.path.insert(0, str(OUT.parent))
        OUT.write_text(json.dumps(outputs()) + "\n")
    else:
        place = Path(settings.get("place", harness.HOME / "build" / "verl")).resolve()
        python = harness.own_python(place, PACKAGES)
        subprocess.run([python, __file__, "outputs"], check=True, cwd=harness.HOME)
