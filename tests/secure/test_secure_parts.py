"""Secret sharing, masks, words and keys: what the protocol is made of."""

import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pacfl.errors import SecureAggregationError
from pacfl.privacy.limits import threshold
from pacfl.secure import masks, shamir
from pacfl.secure.identity import Identity, fingerprint, is_signed, read_trusted
from pacfl.secure.messages import MOST, statement
from pacfl.secure.quantisation import INTEGER, LARGEST, PLAIN, WEIGHTED, from_words, to_words

SECRETS = st.integers(0, 2**256 - 1)


@st.composite
def sharings(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    n = draw(st.integers(1, 9))
    t = draw(st.integers(1, n))
    holders = draw(st.permutations(range(1, n + 1)))
    return n, t, holders[:t]


@given(SECRETS, sharings())
def test_any_t_shares_determine_the_secret(secret: int, sharing: tuple[int, int, list[int]]) -> None:
    n, t, holders = sharing
    dealt = shamir.split(secret, n, t)
    assert shamir.combine({x: dealt[x - 1] for x in holders}) == secret
    assert shamir.combine(dict(enumerate(dealt, 1))) == secret


@given(SECRETS, SECRETS, sharings())
def test_fewer_shares_fit_every_secret(secret: int, other: int, sharing: tuple[int, int, list[int]]) -> None:
    """With t - 1 shares and any secret there is one last share: f(x) by Lagrange from the others and f(0) = other."""
    n, t, holders = sharing
    dealt = shamir.split(secret, n, t)
    known = {x: dealt[x - 1] for x in holders[:-1]}
    last = holders[-1]
    points = {0: other, **known}
    value = 0
    for x, y in points.items():
        above, below = y, 1
        for z in points:
            if z != x:
                above, below = above * (last - z), below * (x - z)
        value += above * pow(below, -1, shamir.PRIME)
    assert shamir.combine({**known, last: value % shamir.PRIME}) == other


def test_impossible_sharings_are_refused() -> None:
    with pytest.raises(ValueError, match="t must be from 1 to n"):
        shamir.split(1, 3, 4)


def test_the_keystream_is_that_of_the_standard() -> None:
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter are zero."""
    expected = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert masks.keystream(bytes(32), 4).astype("<u8").tobytes() == expected


def test_two_owners_agree_on_a_key_for_each_purpose() -> None:
    one, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    pairs = [(a.private_bytes_raw(), b.public_key().public_bytes_raw()) for a, b in ((one, other), (other, one))]
    assert masks.agree(*pairs[0], b"masks") == masks.agree(*pairs[1], b"masks") != masks.agree(*pairs[0], b"seals")


@pytest.mark.parametrize("fraction", [WEIGHTED, PLAIN, INTEGER])
@given(values=st.lists(st.floats(-1, 1), min_size=1, max_size=20), exponent=st.integers(-60, 52))
def test_a_sum_of_words_is_the_sum_of_numbers_to_half_a_step_each(
    fraction: int, values: list[float], exponent: int
) -> None:
    numbers = np.ldexp(np.array(values), min(exponent, 52 - fraction))
    words = np.stack([to_words(np.array([x]), fraction) for x in numbers])
    total = from_words(words.sum(axis=0, dtype=np.uint64), fraction)[0]
    exact = sum(map(Fraction, numbers.tolist()))
    assert abs(Fraction(total) - exact) <= len(values) * Fraction(1, 2 ** (fraction + 1)) + abs(exact) / 2**50


def test_a_thousand_of_the_largest_numbers_do_not_overflow() -> None:
    words = to_words(np.full(1, LARGEST / 2**PLAIN), PLAIN)
    assert from_words(words * np.uint64(MOST), PLAIN)[0] == MOST * LARGEST / 2**PLAIN


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 2.1 * LARGEST / 2**WEIGHTED])
def test_numbers_without_a_word_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="finite and at most"):
        to_words(np.array([0.0, number]), WEIGHTED)


@given(st.lists(st.binary(max_size=5), max_size=4), st.lists(st.binary(max_size=5), max_size=4))
def test_different_parts_are_different_statements(parts: list[bytes], others: list[bytes]) -> None:
    assert (statement(*parts) == statement(*others)) == (parts == others)


@given(st.integers(3, 1024))
def test_two_sums_would_need_more_clients_than_there_are(n: int) -> None:
    """Two sets of confirmations overlap in more than n / 3 clients, so in an honest one if fewer collude."""
    assert 2 * threshold(n) - n > n / 3
    assert 3 <= threshold(n) <= n


# Keys of nodes


@pytest.mark.parametrize("kind", [("ecdsa", "384"), ("ecdsa", "256"), ("ed25519", "256")])
def test_keys_of_ssh_keygen_sign_and_have_its_fingerprints(kind: tuple[str, str], tmp_path: Path) -> None:
    key = tmp_path / "node.key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind[0], "-b", kind[1], "-N", "", "-C", "", "-f", key], check=True)
    shown = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], check=True, capture_output=True, text=True).stdout
    own = Identity.read(key)
    assert fingerprint(own.public) == shown.split()[1]
    signature = own.sign(b"text")
    assert is_signed(own.public, b"text", signature)
    assert not is_signed(own.public, b"another", signature)
    assert not is_signed(Identity.ephemeral().public, b"text", signature)
    assert not is_signed("ssh-rsa nothing", b"text", signature)


def test_a_file_that_has_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("nothing")
    with pytest.raises(SecureAggregationError, match="no key of OpenSSH"):
        Identity.read(tmp_path / "key")
    with pytest.raises(SecureAggregationError, match="no key of OpenSSH"):
        Identity.read(tmp_path / "none")


def test_trusted_sites_are_read_with_their_names(tmp_path: Path) -> None:
    one, other = (fingerprint(Identity.ephemeral().public) for _ in range(2))
    file = tmp_path / "trusted-sites"
    file.write_text(f"# sites of the study\n{one} lyon\n\n{other} graz  # by telephone\n")
    assert read_trusted(file) == {one: "lyon", other: "graz"}
    file.write_text("SHA256:short lyon\n")
    with pytest.raises(SecureAggregationError, match="line 1"):
        read_trusted(file)
    with pytest.raises(SecureAggregationError, match="cannot be read"):
        read_trusted(tmp_path / "none")
