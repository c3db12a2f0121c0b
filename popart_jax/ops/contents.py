"""Module of each operator's translation, so that a program imports only the modules that it needs.

Domain -> module -> names of its operators. `tests/ops` compares it with the table.
"""

from __future__ import annotations

from collections.abc import Mapping

_QONNX = {"qonnx": "BipolarQuant IntQuant Quant Trunc"}
MODULES: Mapping[str, Mapping[str, str]] = {
    "": {
        "activation": """
            Celu Clip Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Softplus Softsign SwiGLU
            Swish ThresholdedRelu
        """,
        "attention": "Attention LinearAttention RotaryEmbedding",
        "cast": "BitCast Cast CastLike",
        "convolution": "CausalConvWithState Conv ConvTranspose",
        "create": "Constant ConstantOfShape EyeLike Range",
        "dropout": "Dropout",
        "elementwise": """
            Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Cos Cosh Div Erf Exp Floor Identity IsInf IsNaN Log Mod
            Mul Neg Pow Reciprocal Round Sigmoid Sign Sin Sinh Sqrt Sub Tan Tanh
        """,
        "experimental": "Affine ConstantFill Crop ImageScaler ParametricSoftplus Scale ScaledTanh",
        "gather": "Gather GatherElements GatherND Scatter ScatterElements ScatterND",
        "image": "ImageDecoder",
        "join": "Concat Pad ReverseSequence Slice Split TensorScatter Trilu",
        "linalg": "Det Einsum Gemm MatMul",
        "logic": """
            And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Not
            Or Xor
        """,
        "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        "microsoft.norm": "SimplifiedLayerNormalization",
        "normalization": """
            BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization
            MeanVarianceNormalization RMSNormalization
        """,
        "pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool",
        "quantize": """
            ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul
            QuantizeLinear
        """,
        "random": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
        "recurrent": "GRU LSTM RNN",
        "reduce": """
            ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
            ReduceMin ReduceProd ReduceSum ReduceSumSquare
        """,
        "regions": "CenterCropPad MaxRoiPool RoiAlign",
        "resize": "Resize Upsample",
        "sampling": "AffineGrid Col2Im DeformConv GridSample",
        "select": "Compress NonZero OneHot TopK Unique Where",
        "sequence": """
            ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct
            SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence
        """,
        "shape": "DepthToSpace Expand Flatten Reshape Shape Size SpaceToDepth Squeeze Tile Transpose Unsqueeze",
        "signal": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
        "softmax": "Hardmax LogSoftmax Softmax",
        "strings": "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
        "suppression": "NonMaxSuppression",
        "variadic": "Max Mean Min Sum",
    },
    "ai.graphcore": {
        "graphcore.collectives": """
            ReplicatedAllGather ReplicatedAllReduce ReplicatedAllReduceInplace ReplicatedReduceScatter
        """,
        "graphcore.convolution": "AddBias ConvFlipWeights MultiConv",
        "graphcore.ctc": "Ctc CtcBeamSearchDecoder",
        "graphcore.dynamic": "DynamicAdd DynamicSlice DynamicUpdate DynamicZero SequenceSlice",
        "graphcore.elementwise": """
            Atan2 BitwiseAnd BitwiseNot BitwiseOr BitwiseXnor BitwiseXor Bucketize CastThenPow2Scale CopyVarUpdate
            Detach Expm1 Fmod Gelu GeluErf IncrementMod Log1p NearbyInt Nop Pow2ScaleThenCast Remainder Round Scale
            ScaledAdd Square Swish
        """,
        "graphcore.losses": "IdentityLoss L1 Nll SoftmaxNll",
        "graphcore.normalization": "BatchNormalization GroupNormalization NormalizeImage",
        "graphcore.printing": "Abort PrintTensor",
        "graphcore.random": "ShapedDropout",
        "graphcore.recurrent": "LSTM",
        "graphcore.scatter": "GroupedGather ScatterReduce",
        "graphcore.shape": """
            DepthToSpace Histogram Init ReduceMedian Reshape Reverse Slice Sort Subsample TensorRemap Zeros
            ZerosLike
        """,
        "graphcore.splines": "SplineBasis SplineWeighting",
        "graphcore.subgraph": "Call PackedDataBlock",
    },
    "ai.onnx.ml": {
        "ml.features": """
            ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer
            LabelEncoder Normalizer OneHotEncoder Scaler ZipMap
        """,
        "ml.linear": "LinearClassifier LinearRegressor SVMClassifier SVMRegressor",
        "ml.trees": "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    },
    "ai.onnx.preview.training": {
        "training": "Adagrad Adam Gradient Momentum",
    },
    "com.microsoft": {
        "microsoft.attention": "Attention MRotaryEmbedding MultiHeadAttention RotaryEmbedding",
        "microsoft.experts": "MoE QMoE",
        "microsoft.fused": """
            BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu CDist ComplexMul ComplexMulConj ExpandDims
            FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatedAdd GatherND Gelu GemmFastGelu
            GridSample Inverse IsAllFinite NhwcConv NhwcFusedConv NhwcMaxPool Pad QuickGelu Range SampleOp
            ScaledSiLU SparseToDenseMatMul TransposeMatMul Trilu
        """,
        "microsoft.grouped": "DecoderMaskedMultiHeadAttention GroupQueryAttention",
        "microsoft.linear_attention": "CausalConvWithState LinearAttention LinearAttentionGate",
        "microsoft.norm": """
            BranchwiseRMSNorm EmbedLayerNormalization GatedRMSNorm GroupNorm SimplifiedLayerNormalization
            SkipGroupNorm SkipLayerNormalization SkipSimplifiedLayerNormalization
        """,
        "microsoft.quantized": """
            DequantizeLinear DynamicQuantizeMatMul GatherBlockQuantized MatMulBnb4 MatMulInteger16
            MatMulIntegerToFloat MatMulNBits MulInteger QAttention QEmbedLayerNormalization QGemm QLinearAdd
            QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul
            QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear ReduceSumInteger
        """,
        "microsoft.recurrent": "DynamicQuantizeLSTM",
        "microsoft.tokens": """
            BifurcationDetector DynamicTimeWarping MurmurHash3 NGramRepeatBlock Tokenizer Unique WordConvEmbedding
        """,
        "microsoft.vision": "ConvTransposeWithDynamicPads CropAndResize UnfoldTensor",
    },
    "popxl": {
        "popxl.arithmetic": """
            Accumulate AccumulatorScale AdamUpdater AdamVarUpdate ArgMax ArgMin CastThenPow2Scale ConvFlipWeights
            ConvOfFlipped ConvOfFlippedPow2Scaled ConvPow2Scaled ConvTransposePow2Scaled CopyVarUpdate CumSum
            Dropout LambSquare MatMulPow2Scaled MatMulTo ModifyRandomSeed PopartSparseAccumulate Pow2ScaleThenCast
            RandomNormal RandomUniform ScaledAdd ShapedDropout Sign TopK
        """,
        "popxl.exchange": """
            AllReduce AllReduceGrad HostLoad HostStore Init IoTileCopy IpuCopy MultiExchange RemoteCodeLoad RemoteLoad
            RemoteStore ReplicatedAllGather ReplicatedAllReduce ReplicatedReduceScatter
        """,
        "popxl.gradients": """
            ClipGrad ExpGrad MaxArgGrad ReduceLogSumGrad ReduceMedianGrad ReluGrad SoftmaxGrad SqrtGrad TanhGrad
            TopKGrad
        """,
        "popxl.pools": "DilatedAveragePool DilatedMaxPool",
        "popxl.printing": "PrintTensor",
        "popxl.tensors": "Gather Histogram Nll NlllWithSoftmaxGradDirect PopartTiedGather Resize SoftmaxGradDirect",
    },
    "qonnx.custom_op.general": _QONNX,
    "onnx.brevitas": _QONNX,
    "finn.custom_op.general": _QONNX,
}


DECLARED_IN: Mapping[str, str] = {
    "AccumulatorZero": "popxl.arithmetic",
    "AutoLossScaleProxy": "graphcore.listed",
    "GetRandomSeed": "graphcore.listed",
    "LossScaleUpdate": "graphcore.listed",
    "Restore": "graphcore.listed",
    "SoftPlusGrad": "activation",
    "SoftSignGrad": "activation",
    "Stash": "graphcore.listed",
    "TiedGatherGrad": "popxl.tensors",
    "UnaryZeroGrad": "graphcore.listed",
}
"""Module of the types without a translation whose names do not begin with the name of a translated operator."""


def places(package: str, contents: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], str]:
    """Full name of the module of every operator, by domain and name."""
    return {
        (domain, op): f"{package}.{module}"
        for domain, modules in contents.items()
        for module, ops in modules.items()
        for op in ops.split()
    }
