"""Our declaration of the messages against the SDK's own classes."""

import numpy as np
import pytest
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import deserialize_forward_backward_output, deserialize_sample_response

from postgrad.serving.request_body import Refusal
from postgrad.serving.tinker.wire import (
    SampledReply,
    decode_pass,
    encode_pass_output,
    encode_sample,
    read_pass_request,
)


def request(**inputs):
    datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]), loss_fn_inputs=inputs)
    asked = types.ForwardBackwardInput(data=[datum], loss_fn="ppo", loss_fn_config={"a": 0.5, "b": "text"})
    return forward_backward_request_to_proto(types.ForwardBackwardRequest(
        forward_backward_input=asked, model_id="m", seq_id=7))


def test_a_request_reads_as_the_sdk_wrote_it():
    weights = np.array([[0, 2.5], [0, 0], [1.5, 0]], np.float32)
    sparse = types.TensorData(data=[2.5, 1.5], dtype="float32", shape=[3, 2],
                              sparse_crow_indices=[0, 1, 1, 2], sparse_col_indices=[1, 0])
    made = decode_pass(read_pass_request(request(target_tokens=np.array([[2, 3]] * 3),
                                                 weights=sparse).SerializeToString()))
    assert (made.model_id, made.seq_id, made.loss, made.config) == ("m", 7, "ppo", {"a": 0.5, "b": "text"})
    assert made.data[0].tokens.tolist() == [1, 2, 3] and not made.forward_only
    assert made.data[0].inputs["target_tokens"].tolist() == [[2, 3]] * 3
    assert (made.data[0].inputs["weights"] == weights).all()


@pytest.mark.parametrize("change, words", [
    (lambda t: t.shape.append(9), "has others"), (lambda t: setattr(t, "dtype", 9), "dtype 9"),
    (lambda t: setattr(t, "dense", b"123"), "no whole numbers"),
    (lambda t: setattr(t.sparse_csr, "values", b"12345678"), "no sparse matrix")])
def test_a_tensor_that_does_not_fit_is_refused_by_its_place(change, words):
    message = request(target_tokens=np.array([1, 2, 3]))
    change(message.data[0].loss_fn_inputs["target_tokens"])
    with pytest.raises(Refusal, match=words) as refused:
        decode_pass(read_pass_request(message.SerializeToString()))
    assert str(refused.value).startswith("data[0].target_tokens")


def test_the_sdk_reads_what_we_write():
    logprobs = [np.array([-1.0, -2.0], np.float32), np.array([[-3.0, -4.0]], np.float32)]
    read = deserialize_forward_backward_output(encode_pass_output(logprobs, {"loss:sum": 1.5}))
    assert read.metrics == {"loss:sum": 1.5}
    assert [x["logprobs"].to_numpy().reshape(like.shape).tolist()
            for x, like in zip(read.loss_fn_outputs, logprobs, strict=True)] == [x.tolist() for x in logprobs]
    reply = SampledReply(tokens=[5, 6], logprobs=[-0.5, -0.25], stop_reason="length",
                         top=[[(5, -0.5), (7, -1.0)], [(6, -0.25)]])
    sampled = deserialize_sample_response(encode_sample([reply], [float("nan"), -2.0], [(), [(1, -2.0)]]))
    one, = sampled.sequences
    assert (one.tokens, one.logprobs, one.stop_reason) == ([5, 6], [-0.5, -0.25], "length")
    assert one.topk_logprobs == [[(5, -0.5), (7, -1.0)], [(6, -0.25)]]
    assert sampled.prompt_logprobs == [None, -2.0] and sampled.topk_prompt_logprobs == [None, [(1, -2.0)]]
