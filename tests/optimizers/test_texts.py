"""Optimizers refuse values, keys, types and replacements in PopART's words (supplement, section 7), whole texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popart_jax as popart

SGD, Adam, Adaptive, Clip = popart.SGD, popart.Adam, popart.Adaptive, popart.ClipNormSettings
Separate = popart.SGDAccumulatorAndMomentum.Separate
INT32 = popart.DataType.INT32
END = "bailing as this might be a user error"
MAP = "(in getOptimizerValueDictionary)"


def const(value: float) -> tuple[float, bool]:
    return value, True


def free(value: float) -> tuple[float, bool]:
    return value, False


def specific(cls: Any, weight: str, **values: tuple[float, bool]) -> Any:
    made = cls({})
    made.insertSpecific(weight, values)
    return made


def twice() -> None:
    specific(SGD, "w", learningRate=const(0.5)).insertSpecific("w", {})


REFUSED: list[tuple[str, Callable[[], Any]]] = [
    *(
        row
        for cls, name in ((SGD, "SGD"), (Adam, "Adam"), (Adaptive, "Adaptive"))
        for row in (
            (f"Negative learning rate (-0.5) in {name}, {END}.", lambda c=cls: c({"defaultLearningRate": free(-0.5)})),
            (f"Constant, zero learning rate in {name}, {END}.", lambda c=cls: c({"defaultLearningRate": const(0)})),
            (f"Negative weight decay (-0.25) in {name}, {END}", lambda c=cls: c({"defaultWeightDecay": free(-0.25)})),
            ("Loss scaling cannot be 0", lambda c=cls: c({"lossScaling": free(0)})),
        )
    ),
    (f"Negative learning rate (-0.5) in SGD, {END}.", lambda: specific(SGD, "w", learningRate=free(-0.5))),
    (f"Negative momentum (-0.1) in SGD, {END}", lambda: SGD({"defaultMomentum": const(-0.1)})),
    (f"Negative dampening (-0.1) in SGD, {END}", lambda: SGD({"defaultDampening": const(-0.1)})),
    ("Non-positive velocity scaling (-0.5) in SGD is not supported",
     lambda: SGD({"defaultVelocityScaling": const(-0.5)})),
    ("When enable nesterov momentum, dampening (0.5) in SGD shouled be zero",
     lambda: SGD({"nesterov": const(1), "defaultDampening": const(0.5), "defaultMomentum": const(0.9)})),
    (f"Negative beta1 (-0.1) in Adam, {END}", lambda: Adam({"defaultBeta1": const(-0.1)})),
    (f"Negative beta2 (-0.1) in Adam, {END}", lambda: Adam({"defaultBeta2": const(-0.1)})),
    ("Non-positive eps (-0.1) in Adam is not supported", lambda: Adam({"defaultEps": const(-0.1)})),
    (f"Negative alpha (-0.1) in Adaptive, {END}", lambda: Adaptive({"defaultAlpha": const(-0.1)})),
    (f"Negative momentum (0.75) in Adaptive, {END}",  # PopART prints alpha
     lambda: Adaptive({"defaultMomentum": const(-0.1), "defaultAlpha": const(0.75)})),
    ("Non-positive eps (-0.1) in Adaptive is not supported", lambda: Adaptive({"defaultEps": const(-0.1)})),
    ("The rmspropTFVariant parameter is only valid with the RMSProp and CenteredRMSProp optimizers.",
     lambda: Adaptive({}, popart.AdaptiveMode.AdaGrad, rmsprop_tf_variant=True)),
    (f"A key in the optimizer map input must be a py::str {MAP}", lambda: SGD({1: const(0.1)})),
    (f"A value in the optimizer map must be a py::tuple {MAP}", lambda: Adam({"defaultLearningRate": 0.1})),
    (("Invalid Adaptive key, foo, the allowed keys are ( defaultAlpha defaultEps defaultLearningRate defaultMomentum "
     "defaultWeightDecay lossScaling )"), lambda: Adaptive({"foo": const(1)})),
    (("Invalid SGD key, defaultNesterov, the allowed keys are ( defaultDampening defaultLearningRate defaultMomentum "
     "defaultVelocityScaling defaultWeightDecay lossScaling nesterov )"), lambda: SGD({"defaultNesterov": const(1)})),
    (("Invalid key foo in Adam::insertSpecific. Permitted keys are ( beta1 beta2 eps learningRate maxWeightNorm "
     "weightDecay )"), lambda: Adam({}).insertSpecific("w", {"foo": const(1)})),
    (("Attempt to insert specific value for optimization Tensor wfailed as there is already a specific value for w "
     "present. Bailing, in case this is an error."), twice),
    (("Multiple clip groups specified, but one has the mode 'ClipAllWeights'. When using "
     "ClipNormSettings.clipAllWeights(...), only one group should be specified."),
     lambda: SGD({}, [Clip.clipAllWeights(1.0), Clip(["w"], 1.0)])),
    (("ClipNormSettings.getWeightIds should only be called if ClipNormSettings.getMode returns "
     "Mode::ClipSpecifiedWeights."), lambda: Clip.clipAllWeights(1.0).getWeightIds()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "make"), REFUSED, ids=[f"{i}-{text[:24]}" for i, (text, _) in enumerate(REFUSED)])
def test_values_and_keys(text, make):
    with pytest.raises(popart.popart_exception) as caught:
        make()
    assert caught.value.args[0] == text


def test_any_finite_loss_scale_is_legal():
    assert SGD({"lossScaling": const(1e10)}).getLossScalingVal() == np.float32(1e10)


def session(optimizer: Any) -> popart.TrainingSession:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 2])
    w = builder.addInitializedInputTensor(np.ones((2, 2), np.float32), "w")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)
    device = popart.DeviceManager().createCpuDevice()
    return popart.TrainingSession(builder.getModelProto(), popart.DataFlow(1, {}), loss, optimizer, device)


DEFAULT, NO_VARIABLE = "Default value is not a valid replacement. ", "Can not replace a constant value with a non "
VALUES = "Values are constant but do not match."
REPLACED: list[tuple[str, Any, Any]] = [
    ("Clip norm settings do not match.", SGD({}, [Clip(["w"], 1.0)]), SGD({})),
    ("Clip norm settings at index 0 do not match.", SGD({}, [Clip(["w"], 1.0)]), SGD({}, [Clip(["w"], 2.0)])),
    ("Can not replace optimizer of type SGD with new optimizer of type Adam", SGD({}), Adam({})),
    ("Adam modes do not match", Adam({}), Adam({}, popart.AdamMode.AdamNoBias)),
    ("Adaptive modes do not match", Adaptive({}), Adaptive({}, popart.AdaptiveMode.AdaGrad)),
    ("Weight decay modes do not match", Adam({}),
     Adam({}, popart.AdamMode.Adam, popart.WeightDecayMode.L2Regularization)),
    ("this does not require a velocity tensor, but other does.", SGD({}), SGD({"defaultMomentum": free(0.9)})),
    ("this does not require a velocity tensor, but other does.", SGD({"defaultMomentum": const(0.9)}), SGD({})),
    ("this has SGDAccumulatorAndMomentum Combined, but other has Separate", SGD({"defaultMomentum": const(0.9)}),
     SGD({"defaultMomentum": const(0.9)}, accumulatorAndMomentum=Separate)),
    (f"Problem with loss scaling. {NO_VARIABLE}constant value.", SGD({"lossScaling": const(2)}),
     SGD({"lossScaling": free(2)})),
    (f"Problem with loss scaling. {VALUES}", SGD({"lossScaling": const(2)}), SGD({"lossScaling": const(3)})),
    *((f"Problem with {words}. {DEFAULT}{VALUES}", cls({key: const(0.2)}), cls({key: const(0.3)}))
      for cls, key, words in (
          (SGD, "defaultLearningRate", "learning rates"), (SGD, "defaultWeightDecay", "weight decays"),
          (SGD, "defaultMomentum", "momentums"), (SGD, "defaultVelocityScaling", "velocity scalings"),
          (Adam, "defaultLearningRate", "learning rates"), (Adam, "defaultBeta1", "beta1s"),
          (Adam, "defaultBeta2", "beta2s"), (Adam, "defaultEps", "eps"), (Adam, "defaultMaxWeightNorm", "mwn"),
          (Adaptive, "defaultAlpha", "alphas"), (Adaptive, "defaultMomentum", "momentums"),
      )),
    (f"Problem with nesterov. {DEFAULT}{VALUES}", SGD({"nesterov": const(1)}), SGD({"nesterov": const(0)})),
    (f"Problem with learning rates. {DEFAULT}{NO_VARIABLE}constant value.", SGD({}),
     SGD({"defaultLearningRate": free(0.1)})),
    ("Problem with learning rates. Replacement OptimizerValueMap has a different number of specific tensors.",
     specific(SGD, "w", learningRate=free(0.1)), SGD({})),
    ("Problem with learning rates. Could not find tensor w in replacement OptimizerValueMap.",
     specific(SGD, "w", learningRate=free(0.1)), specific(SGD, "q", learningRate=free(0.1))),
    (f"Problem with learning rates. OptimizerValue for tensor w is not a valid replacement.{VALUES}",
     specific(SGD, "w", learningRate=const(0.1)), specific(SGD, "w", learningRate=const(0.2))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "old", "new"), REPLACED, ids=[f"{i}-{text[:30]}" for i, (text, *_) in enumerate(REPLACED)]
)
def test_replacements(text, old, new):
    with pytest.raises(popart.popart_runtime_error) as caught:
        old.check_replacement(new)
    assert caught.value.args[0] == f"New optimizer is not a valid replacement. {text}"
    old.check_replacement(old.clone())


def test_a_session_refuses_a_replacement_when_it_is_sent():
    with pytest.raises(popart.popart_runtime_error, match=r"^New optimizer is not a valid replacement\. Problem with"):
        session(SGD({})).updateOptimizerFromHost(SGD({"defaultLearningRate": const(0.3)}))


STATE: list[tuple[str, Any]] = [
    ("SGD0 only supports FLOAT or FLOAT16 for DataType of accumType. You passed int32.", SGD({}, accumType=INT32)),
    ("SGD2 only supports FLOAT or FLOAT16 for DataType of accl1Type. You passed int32.",
     SGD({"defaultMomentum": const(0.9)}, accumulatorAndMomentum=Separate, accl1Type=INT32)),
    ("Unsupported data type for tensor Accl2___w, currently only FLOAT16 and FLOAT are supported",
     Adam({}, accl2_type=INT32)),
    ("Unsupported data type for tensor Accl3___w, currently only FLOAT16 and FLOAT are supported",
     Adaptive({}, accl3_type=INT32)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "optimizer"), STATE, ids=[text[:60] for text, _ in STATE])
def test_types_of_state_are_refused_when_a_session_is_made(text, optimizer):
    with pytest.raises(popart.popart_exception) as caught:
        session(optimizer)
    assert caught.value.args[0] == text
