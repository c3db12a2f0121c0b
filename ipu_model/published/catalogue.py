"""Which network a row means: patterns of names and the configuration beside them.

A name picks an architecture, the configuration (batch, sequence, image, layers, width, parameters) its size. A name
that nothing here matches is priced by its configuration; without one, as a transformer of base size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from ipu_model.published import networks
from ipu_model.published.networks import Network
from ipu_model.published.words import RANGE

Config = Mapping[str, Any]
Build = Callable[[int, Config], Network]
AVERAGE_TOKENS = 256  # of sequences up to 384 long, where a server packs them together
SIZES = {  # layers, width and hidden width of encoders
    "tiny": (2, 128, 512),
    "mini": (4, 256, 1024),
    "small": (4, 512, 2048),
    "medium": (8, 512, 2048),
    "base": (12, 768, 3072),
    "large": (24, 1024, 4096),
}
NAMED = {"tinybert": (4, 312, 1200), "minilm": (12, 384, 1536), "mobilebert": (24, 256, 1024)}  # MobileBERT: about
WHISPER = {"tiny": (4, 384), "base": (6, 512), "small": (12, 768), "medium": (24, 1024), "large": (32, 1280)}
VISION = {"tiny": (12, 192), "small": (12, 384), "base": (12, 768), "large": (24, 1024), "huge": (32, 1280)}
# Layers, width and the two hidden widths of MLP-Mixer: across patches, across channels.
MIXER = {"small": (8, 512, 256, 2048), "base": (12, 768, 384, 3072), "large": (24, 1024, 512, 4096)}
LANGUAGE = {"small": (12, 768), "medium": (24, 1024), "large": (36, 1280), "xl": (48, 1600)}
EFFICIENT = ((224, 1.0, 1.0), (240, 1.0, 1.1), (260, 1.1, 1.2), (300, 1.2, 1.4), (380, 1.4, 1.8), (456, 1.6, 2.2),
             (528, 1.8, 2.6), (600, 2.0, 3.1))  # fmt: skip
RESIDUAL = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
WINDOWS = {"tiny": (96, (2, 2, 6, 2)), "small": (96, (2, 2, 18, 2)), "base": (128, (2, 2, 18, 2)),
           "large": (192, (2, 2, 18, 2))}  # fmt: skip
MASKED = 0.15  # share of the words that pretraining predicts
TOKENS_OF_A_SECOND = 50  # of speech
DENOISING = 50  # evaluations of a diffusion network for an image
GRAPHS = (("schnet", (6, 128)), (r"\bgin\b|\bgcn\b|\bgat\b|sage", (4, 128)), ("tgn", (1, 128)))
WORDS, CHARACTERS = 50257, 65  # vocabulary of language models, and of those that take texts by character
PIECE = 512  # tokens that attention in pieces takes at a time, where a row does not say how many
# Micro-batches of an iteration where a training script has a default of its own.
ACCUMULATED = ((r"nano-?gpt", 40),)
RAY_SAMPLES = 256  # on each ray: 64 in the coarse network, these and 128 more in the fine one
VGG = ((2, 3, 64, 1), (2, 3, 128, 2), (3, 3, 256, 2), (3, 3, 512, 2), (3, 3, 512, 2))
DETECTED = (512, 640, 768, 896, 1024, 1280, 1280, 1536)  # side of the images of EfficientDet-D0 to D7
# Depth and width of detectors by the letter or word behind "YOLO", as multiples of the large one.
YOLO = {"n": (0.33, 0.25), "s": (0.33, 0.5), "m": (0.67, 0.75), "x": (1.33, 1.25), "tiny": (0.33, 0.4)}
DETECTOR = ((1, 3, 32, 1), (2, 3, 64, 2), (4, 3, 128, 2), (8, 3, 256, 2), (8, 3, 512, 2), (4, 3, 1024, 2))


def number(config: Config, name: str, default: int) -> int:
    """A whole number of the configuration, however written (``8``, ``"65,536"``, ``"64k"``, ``"64x512"``: the last).

    Raises ValueError where it is less than one, no number, or several.
    """
    value = config.get(name, "")
    if _is_several(value):
        raise ValueError(f"{name} is {value!r}; figures of one workload are predicted")
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", str(config.get(name, "")).lower())
    found = re.findall(r"((?<!\w)-)?(\d+(?:\.\d+)?)(k\b)?", text)
    if not found:
        if text.strip():
            raise ValueError(f"{name} is {value!r}, expected a whole number of at least 1")
        return default
    sign, digits, thousands = found[-1]
    size = int(float(digits) * (1024 if thousands else 1))
    if sign or size < 1:
        raise ValueError(f"{name} is {config[name]!r}, expected a whole number of at least 1")
    return size


def _is_several(value: Any) -> bool:
    """Whether an entry holds other numbers than one: a list of different ones, or a range."""
    if isinstance(value, list):
        return len({str(part) for part in cast("list[Any]", value)}) > 1
    return isinstance(value, str) and RANGE.fullmatch(value.strip()) is not None


def parameters(config: Config) -> float:
    """How many parameters a row says that its network has (``"10.67M"``); 0 where it does not."""
    found = re.match(r"([\d.]+) ?([kmb])", str(config.get("params", "")).lower())
    return float(found[1]) * {"k": 1e3, "m": 1e6, "b": 1e9}[found[2]] if found else 0.0


def piece_of(name: str) -> int:
    """Tokens whose attention a network computes at a time, where its name says that it does so ("flash"); else 0."""
    return PIECE if "flash" in name.lower() else 0


def accumulated(name: str) -> int:
    """Micro-batches of an iteration of a network's own training script; 0 where none is known."""
    return next((count for pattern, count in ACCUMULATED if re.search(pattern, name.lower())), 0)


def size_of(name: str, default: str) -> str:
    """The size word in a name (``"large"``, ``"-l"``, ``"B"``, ...)."""
    for word in ("tiny", "mini", "small", "medium", "base", "large", "huge", "xl"):
        if re.search(rf"\b{word}|{word}\b", name):
            return word
    letter = re.search(r"[-_ /]([tsmblh])\b", name)
    words = {"t": "tiny", "s": "small", "m": "medium", "b": "base", "l": "large", "h": "huge"}
    return words[letter[1]] if letter else default


def _encoder(name: str, tokens: int, layers: int = 0) -> Build:
    def build(batch: int, config: Config) -> Network:
        size = size_of(name, "base")
        sized = SIZES.get(size, SIZES["large" if size in ("huge", "xl") else "base"])
        depth, width, hidden = next((own for known, own in NAMED.items() if known in name), sized)
        default = AVERAGE_TOKENS if size == "base" else tokens
        depth = number(config, "layers", layers or depth)
        width = number(config, "d", number(config, "hidden", width))
        hidden = 4 * width if "d" in config or "hidden" in config else hidden
        heads = number(config, "heads", max(1, width // 64))
        predicted = MASKED if "pretrain" in name else 0.0
        return networks.encoder(
            depth, width, hidden, number(config, "seq", default), batch, heads=heads, predicted=predicted,
            piece=piece_of(name),
        )  # fmt: skip

    return build


def _patch(name: str, config: Config, default: int) -> int:
    found = re.search(r"/(\d+)|patch[- ]?(\d+)", name)
    return number(config, "patch", int(next(g for g in found.groups() if g)) if found else default)


def _contrastive(name: str) -> Build:
    """Both towers, where the row does not name one of them."""
    one = re.search(r"(image|vision|visual)|text", name)

    def build(batch: int, config: Config) -> Network:
        if one:
            return networks.clip_texts(batch, number(config, "seq", networks.CLIP_TOKENS))
        return networks.contrastive(batch, number(config, "image", 224), _patch(name, config, 32))

    return _vision(name) if one and one[1] else build


def _vision(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        layers, width = VISION.get(size_of(name, "base"), VISION["base"])
        patch = _patch(name, config, 16)
        tokens = (number(config, "image", 224) // max(1, patch)) ** 2 + 1
        return networks.encoder(layers, width, 4 * width, tokens, batch, patch=patch, served="vision")

    return build


def _mixer(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        size, patch = MIXER.get(size_of(name, "base"), MIXER["base"]), _patch(name, config, 16)
        tokens = max(1, number(config, "image", 224) // max(1, patch)) ** 2
        return networks.mixer(batch, *size, tokens, patch)

    return build


def _swin(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        size = size_of(name, "tiny")
        width, depths = WINDOWS.get(size, WINDOWS["tiny"])
        image = number(config, "image", 384 if size == "large" else 224)
        return networks.swin(batch, width, depths, image, 12 if image == 384 else 7)

    return build


def _resnet(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        found = re.search(r"(?:resnet|resnext|rn)[a-z]*[- _]?(\d+)", name)
        layers = int(found[1]) if found else 50
        depths, image = RESIDUAL.get(layers, RESIDUAL[50]), number(config, "image", 224)
        if "resnext" in name:  # groups, and channels of each in the first stage
            found = re.search(r"(\d+)x(\d+)d", name)
            groups, each = map(int, found.groups() if found else (32, 4))
            return networks.resnet(batch, image, depths, groups, max(1, groups * each // 64))
        if re.search(r"\bwide[- ]?res|\bwrn", name):
            return networks.resnet(batch, image, depths, inner=2)
        return networks.resnet(batch, image, depths, basic=layers < 50)

    return build


def _efficientnet(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        which = re.search(r"b(\d)", name)
        image, wide, deep = EFFICIENT[min(7, int(which[1])) if which else 0]
        group = re.search(r"group[- ]?(?:size[- ]?)?(\d+)|g(\d+)\b", name)
        each = int(next(g for g in group.groups() if g)) if group else 1
        return networks.efficientnet(batch, number(config, "image", image), wide, deep, each)

    return build


def _detector(name: str) -> Build:
    """A detector with a plain network; those that look at regions take larger images."""
    found = re.search(r"yolo[-_ ]?(?:v?\d+)?[-_ ]?(n|s|m|x|tiny)\b", name)
    deep, wide = YOLO[found[1]] if found else (1.0, 1.0)
    layers = tuple((max(1, round(n * deep)), k, max(8, round(c * wide)), s) for n, k, c, s in DETECTOR)
    image = 300 if "ssd" in name else 416 if "yolo" in name else 800
    return lambda batch, config: networks.plain_stages(batch, number(config, "image", image), layers)


def _pyramid(name: str) -> Build:
    """EfficientDet by its backbone, at the images that it takes."""
    found = re.search(r"d(\d)\b", name)
    which = min(7, int(found[1])) if found else 0
    return lambda batch, config: _efficientnet(f"b{which}")(batch, {"image": DETECTED[which], **config})


def _diffusion(name: str) -> Build:
    """The denoising network, evaluated once where the words say so or it is trained, else for a whole image."""
    once = re.search(r"unet|u-net|\bstep|train|fine-?tun", name)

    def build(batch: int, config: Config) -> Network:
        times = 1 if once else number(config, "steps", DENOISING)
        return networks.diffusion(batch, number(config, "image", 512) // 8, times)

    return build


def _refused(name: str) -> Build:
    raise ValueError(f"{name!r}: no network of this sort is described (volumes, sampling, sorting and the like)")


def _language(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        tokens = number(config, "seq", 1024)
        billions = re.search(r"(\d+(?:\.\d+)?) ?b\b", name)
        if billions or re.search(r"gpt-?j|llama|neox|bloom|\bopt\b|mistral", name):
            return networks.of_parameters(float(billions[1] if billions else 6.0) * 1e9, tokens, batch)
        layers, width = LANGUAGE.get(size_of(name, "small"), LANGUAGE["small"])
        layers, width = number(config, "layers", layers), number(config, "d", width)
        words, count = WORDS, parameters(config)
        if count:  # what the layers leave; texts may be taken by character
            words = max(CHARACTERS, round((count - 12 * layers * width**2) / width))
        return networks.encoder(
            layers, width, 4 * width, tokens, batch, heads=number(config, "heads", max(1, width // 64)),
            vocabulary=words, predicted=1.0, causal=True, piece=piece_of(name),
        )  # fmt: skip

    return build


def _conformer(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        if "encoder" in name:
            return networks.conformer(batch, number(config, "input", 512), 12, 256, 2048)
        if size_of(name, "medium") == "large":
            return networks.conformer(batch, 1200, 17, 512, 2048)
        width = 144 if size_of(name, "medium") == "small" else 256
        return networks.conformer(batch, number(config, "input", 600), 16, width, 4 * width)

    return build


def _speech(name: str) -> Build:
    def build(batch: int, config: Config) -> Network:
        layers, width, _ = SIZES["large" if "large" in name else "base"]
        seconds = number(config, "seconds", 30 if "whisper" in name else 10)
        if "whisper" in name:
            layers, width = WHISPER.get(size_of(name, "base"), WHISPER["base"])
        tokens = number(config, "seq", TOKENS_OF_A_SECOND * seconds)
        return networks.encoder(layers, width, 4 * width, tokens, batch, patch=16, served="speech")

    return build


def _translation(name: str) -> Build:
    """Encoder and decoder; T5 has as many layers in each as an encoder of its size, others have half of them."""
    own = re.search(r"t5", name)

    def build(batch: int, config: Config) -> Network:
        layers, width, hidden = SIZES.get(size_of(name, "base"), SIZES["base"])
        layers = max(layers, 6) if own else layers // 2 or 1
        return networks.translation(layers, width, hidden, number(config, "seq", 512), batch)

    return build


def _plain(make: Callable[[int], Network]) -> Callable[[str], Build]:
    return lambda name: lambda batch, config: make(batch)


def _rays(name: str) -> Build:
    sizes = (63, 256, 256, 256, 256, 256, 256, 256, 256, 4)
    return lambda batch, config: networks.mlp(batch, sizes, "rays", RAY_SAMPLES)


def _image(layers: tuple[tuple[int, int, int, int], ...], image: int) -> Callable[[str], Build]:
    return lambda name: lambda batch, config: networks.plain_stages(batch, number(config, "image", image), layers)


def _rotary(name: str) -> Build:
    size = (12, 384, 1536) if "v2" in name else SIZES["base"]

    def build(batch: int, config: Config) -> Network:
        tokens = number(config, "seq", 64 if "v2" in name else AVERAGE_TOKENS)
        return networks.encoder(*size, tokens, batch, served="rotary")

    return build


def _graph(name: str) -> Build:
    layers, width = next((size for pattern, size in GRAPHS if re.search(pattern, name)), (16, 256))
    return lambda batch, config: networks.graph(
        number(config, "layers", layers), number(config, "d", number(config, "hidden", width)), 32, batch
    )


# What a row calls its model, as a pattern, with the maker of its network. The first that matches counts.
NETWORKS: tuple[tuple[str, Callable[[str], Build]], ...] = (
    (r"\bmcmc\b|monte carlo|k-?means|pagerank|\bffts?\b|\bsort(ing)?\b|n-?body|3d[- ]?u-?net|u-?net[- ]?3d|\bv-?net\b",
     _refused),
    (r"\bclip\b", _contrastive),
    (r"videobert|unified|\bvit\b|\bvit-|vision transformer|deit|dino|\bmae\b|beit", _vision),
    (r"mixer", _mixer),
    (r"roformer", _rotary),
    (r"wav2vec|hubert|whisper", _speech),
    (r"distil", lambda name: _encoder(name, 384, layers=6)),
    (r"deberta", lambda name: _encoder(name, 384)),
    (r"bert|electra|ernie|xlnet|longformer|bigbird|squad", lambda name: _encoder(name, 384)),
    (r"yolo|retinanet|\bssd\b(?!.*mobile)|faster[- ]?r|mask[- ]?r", _detector),
    (r"resnet|resnext|\brn\d+|\bwrn", _resnet),
    (r"swin", _swin),
    (r"conformer", _conformer),
    (r"wide|dlrm|deep and wide|\bdin\b|\bdien\b|autoint|deepfm|recommend|\bncf\b", _plain(networks.wide_and_deep)),
    (r"nerf|neural image|radiance", _rays),
    (r"mnist.*(linear|mlp)|linear.*mnist|mnist linear", _plain(lambda b: networks.mlp(b, (784, 10)))),
    (r"efficientnet", _efficientnet),
    (r"efficientdet", _pyramid),
    (r"mobilenet", lambda name: _efficientnet("b0")),
    (r"vgg", _image(VGG, 224)),
    (r"inception|densenet|googlenet|regnet|convnext", _image(((1, 7, 64, 2), (2, 3, 96, 2), (6, 3, 192, 2),
                                                             (8, 3, 256, 2), (4, 3, 512, 2)), 299)),
    (r"dall-?e", lambda name: lambda b, c: networks.encoder(6, 1024, 4096, 1280, b, causal=True)),
    (r"diffusion", _diffusion),
    (r"rnn-?t|transducer", lambda name: lambda b, c: networks.recurrent(b, 300, 5, 480, 1152)),
    (r"deep ?speech|deep ?voice|lstm|gru|recurrent",
     lambda name: lambda b, c: networks.recurrent(b, 300, 4, 512, 1024)),
    (r"gpt|llama|bloom|\bopt\b|language model|mistral", _language),
    (r"\bt5\b|bart|pegasus|translation|transformer-big|marian", _translation),
    (r"fastspeech|fastpitch|tacotron", lambda name: lambda b, c: networks.encoder(12, 384, 1536, 600, b)),
    (r"unet|u-net|segmentation", lambda name: lambda b, c: networks.unet(b, number(c, "image", 572))),
    (r"gps|gnn|graph|schnet|\bgcn\b|\bgin\b|\bgat\b|sage|tgn|molec|nbfnet|shallow", _graph),
    (r"transformer|attention", lambda name: _encoder(name, 384)),
    (r"mlp|autoencoder|perceptron|dense", _plain(lambda b: networks.mlp(b, (1024, 4096, 4096, 1024)))),
    (r"cnn|mnist|convolution|image", _image(((1, 3, 32, 1),), 28)),
)  # fmt: skip


def _maker(name: str) -> Callable[[str], Build] | None:
    return next((make for pattern, make in NETWORKS if re.search(pattern, name.lower())), None)


def is_named(name: str) -> bool:
    """Whether a text holds the name of a network."""
    return _maker(name) is not None


def network(name: str, batch: int, config: Config) -> Network:
    """The network that a row describes; one of unknown name is a transformer of the described size."""
    name = name.lower()
    make = _maker(name)
    if make is not None:
        return make(name)(batch, config)
    count = parameters(config)
    if count:
        return networks.of_parameters(count, number(config, "seq", AVERAGE_TOKENS), batch)
    if "image" in config:
        return networks.resnet(batch, number(config, "image", 224))
    return _encoder(name, AVERAGE_TOKENS)(batch, config)
