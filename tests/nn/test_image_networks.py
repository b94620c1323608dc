"""Image networks: the published sizes, shapes, and back from their settings."""

import pytest
import torch
from torch import nn

import solera.nn
from solera import EnD, Student
from solera.nn import VGG, ResNet, WideResNet

SHAPE = (3, 32, 32)


def size(network):
    return sum(p.numel() for p in network.parameters())


@pytest.mark.parametrize(
    ("depth", "width", "millions"),
    [(40, 1, 0.6), (40, 2, 2.2), (40, 4, 8.9), (28, 10, 36.5), (22, 8, 17.2), (16, 8, 11.0), (16, 10, 17.1)],
)
def test_wide_resnets_have_the_published_size(depth, width, millions):
    """Zagoruyko & Komodakis (2016), Tables 3 and 4."""
    with torch.device("meta"):
        assert round(size(WideResNet(depth, width, SHAPE, 10)) / 1e6, 1) == millions


def test_a_small_wide_resnet_counted_by_hand():
    """Of WRN-16-1: 432 + 2·2·(16·16·9) + ... = 175,066."""
    groups = (
        4 * 16 * 16 * 9,
        (16 + 32) * 32 * 9 + 2 * 32 * 32 * 9 + 16 * 32,
        (32 + 64) * 64 * 9 + 2 * 64 * 64 * 9 + 32 * 64,
    )
    norms = 2 * (4 * 16 + (16 + 3 * 32) + (32 + 3 * 64) + 64)
    assert size(WideResNet(16, 1, SHAPE, 10)) == 3 * 16 * 9 + sum(groups) + norms + 650 == 175_066


def test_resnet_20_has_the_hydra_papers_count():
    """Table of sizes in Tran et al.: 274,442, the running statistics of batch norm included."""
    network = ResNet(20, SHAPE, 10)
    statistics = sum(buffer.numel() for name, buffer in network.named_buffers() if "running" in name)
    assert (size(network), size(network) + statistics) == (273_066, 274_442)
    assert [round(size(ResNet(depth, SHAPE, 10)) / 1e6, 2) for depth in (32, 44, 56)] == [0.47, 0.66, 0.86]


def test_vgg_16_has_sixteen_layers_and_15_million_parameters():
    with torch.device("meta"):
        network = VGG(SHAPE, 10)
    assert size(network) == 15_253_578
    assert sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in network.modules()) == 16
    with torch.device("meta"):
        bare = VGG(SHAPE, 10, depth=19, norm=False)
    assert sum(isinstance(m, (nn.Conv2d, nn.Linear)) for m in bare.modules()) == 19
    assert not any(isinstance(m, nn.BatchNorm2d) for m in bare.modules())


NETWORKS = {
    "WideResNet": lambda: WideResNet(10, 2, (3, 16, 24), 7, dropout=0.1, stride=2),
    "ResNet": lambda: ResNet(14, (3, 16, 24), 7, channels=8),
    "VGG": lambda: VGG((3, 32, 48), 7, depth=11, dropout=0.3, feature_dropout=0.1, channels=4),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_student_of_it_comes_back_from_disk(tmp_path, name):
    network = NETWORKS[name]()
    images = torch.randn(4, *network.settings["shape"])
    network(images)  # running statistics that are not the first ones
    student = Student(network, EnD()).eval()
    again = Student.load(student.save(tmp_path))
    assert type(again.model) is getattr(solera.nn, name)
    assert again.model.settings == network.settings
    assert torch.equal(again.predict(images).mean, student.predict(images).mean)
    assert student.predict(images).mean.shape == (4, 7)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_learns_and_the_layout_does_not_matter(name):
    network = NETWORKS[name]()
    images = torch.randn(4, *network.settings["shape"])
    network(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    network.eval()
    first = network(images)
    last = network.to(memory_format=torch.channels_last)(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(first, last, rtol=1e-3, atol=1e-4)


def test_a_wide_resnet_may_begin_with_fewer_pixels():
    images = torch.zeros(1, *SHAPE)
    assert [WideResNet(10, 1, SHAPE, 10, stride=n).conv(images).shape[-1] for n in (1, 2)] == [32, 16]


def test_a_wide_resnet_is_pre_activated():
    """A block of zero convolutions hands on what it got, before any ReLU."""
    block = WideResNet(16, 1, SHAPE, 10).group1[1].eval()
    nn.init.zeros_(block.conv2.weight)
    images = torch.randn(2, 16, 4, 4)
    assert torch.equal(block(images), images)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: WideResNet(20, 1, SHAPE, 10), r"6·n \+ 4 layers \(10, 16, 22, 28, 40\), got depth=20"),
        (lambda: ResNet(18, SHAPE, 10), r"6·n \+ 2 layers \(20, 32, 44, 56\), got depth=18"),
        (lambda: VGG(SHAPE, 10, depth=12), "depth must be one of 11, 13, 16, 19, got 12"),
        (lambda: VGG((3, 28, 28), 10), "leave nothing of a 28×28 image: pad it to 32×32"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_error(act, message):
    with pytest.raises(ValueError, match=message):
        act()
