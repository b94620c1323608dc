"""Blocks and reference networks, no training logic. Networks keep their `settings`: a student can be rebuilt."""

from solera.data.tag_scheme import Span
from solera.nn.batch_ensemble import Subnetworks, branch, merge
from solera.nn.convnet import ConvNet
from solera.nn.crf import CRF
from solera.nn.default import network_for
from solera.nn.heads import Heads, grow
from solera.nn.mlp import MLP
from solera.nn.piecewise import PiecewiseLinear
from solera.nn.resnet import ResNet
from solera.nn.speech import LogMel, Recogniser
from solera.nn.standardize import Standardize
from solera.nn.table import Table
from solera.nn.tagger import Tagger
from solera.nn.transformer import EncoderDecoder, Translator
from solera.nn.units import Units
from solera.nn.vgg import VGG
from solera.nn.wide_resnet import WideResNet
from solera.nn.words import WordFeatures

__all__ = [
    "CRF",
    "MLP",
    "VGG",
    "ConvNet",
    "EncoderDecoder",
    "Heads",
    "LogMel",
    "PiecewiseLinear",
    "Recogniser",
    "ResNet",
    "Span",
    "Standardize",
    "Subnetworks",
    "Table",
    "Tagger",
    "Translator",
    "Units",
    "WideResNet",
    "WordFeatures",
    "branch",
    "grow",
    "merge",
    "network_for",
]
