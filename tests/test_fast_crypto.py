"""The quick SM4-CTR, FNV, SM3 and SM2 equal the plain ones, around their thresholds, wraps and extremes."""

from __future__ import annotations

import random
import unittest
from unittest import mock

from tests.tools import thorough
from vqfref.crypto import sm2 as plain_sm2
from vqfref.crypto.fnv import OFFSET_BASIS, PRIME
from vqfref.crypto.fnv import fnv1a64 as plain_fnv1a64
from vqfref.crypto.sm3 import SM3 as PlainSM3
from vqfref.crypto.sm4 import SBOX
from vqfref.crypto.sm4 import sm4_ctr as plain_sm4_ctr
from vqfref.errors import SignatureError, UsageError

try:
    from vqfref.fast import fnv, sm2, sm3, sm4
except ImportError:
    raise unittest.SkipTest("without fast/ there is nothing to test") from None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

KEY = bytes.fromhex("0123456789abcdeffedcba9876543210")


class Sm4Ctr(unittest.TestCase):
    def equal(self, iv: bytes, length: int, offset: int = 0) -> None:
        data = random.Random(length).getrandbits(8 * length).to_bytes(length, "little") if length else b""
        got, want = sm4.sm4_ctr(KEY, iv, data, offset), plain_sm4_ctr(KEY, iv, data, offset)
        if got != want:
            at = next(i for i, (a, b) in enumerate(zip(got + b"\0", want + b"\1")) if a != b)
            self.fail("iv %s, %d bytes from %d: byte %d differs" % (iv.hex(), length, offset, at))

    def small(self, few: int = 2, many: int = 24, byte_batch: int = 10, bit_batch: int = 40) -> Any:
        """Thresholds at which the plain version is quick enough to compare with."""
        return mock.patch.multiple(sm4, FEW=few, MANY=many, BYTE_BATCH=byte_batch, BIT_BATCH=bit_batch)

    def test_the_circuit_is_the_s_box(self) -> None:
        planes = [sum((x >> j & 1) << x for x in range(256)) for j in range(8)]
        out = sm4.box(*planes)
        for x in range(256):
            self.assertEqual(sum((plane >> x & 1) << j for j, plane in enumerate(out)), SBOX[x ^ 0x75] ^ 0xD3, x)

    def test_lengths_around_every_threshold(self) -> None:
        for blocks in (0, 1, sm4.FEW - 1, sm4.FEW, sm4.FEW + 1):
            for rest in (-1, 0, 1):
                if blocks or rest >= 0:
                    self.equal(bytes(15) + b"\xfe", 16 * blocks + rest)
        with self.small():
            for blocks in (1, 2, 9, 10, 11, 23, 24, 25, 39, 40, 41, 63, 64, 65, 80, 81, 90, 103, 104, 105):
                for rest in (-1, 0, 1):
                    self.equal(bytes(15) + b"\xfe", 16 * blocks + rest)

    def test_the_real_thresholds_are_crossed_without_a_seam(self) -> None:
        size = 16 * sm4.MANY
        data = bytes(range(256)) * (size // 256 + 1)
        for length in (16 * sm4.BYTE_BATCH, 16 * sm4.BYTE_BATCH + 1, size - 16, size, size + 1):
            iv = bytes(14) + b"\xff\xf0"
            whole = sm4.sm4_ctr(KEY, iv, data[:length], 7)
            self.assertEqual(len(whole), length)
            for at in (0, 1, 100, length - 40, length - 1):
                self.assertEqual(whole[at : at + 40], plain_sm4_ctr(KEY, iv, data[at : min(at + 40, length)], 7 + at))

    def test_counters_that_wrap_anywhere(self) -> None:
        with self.small():
            for bits in (8, 16, 32, 64, 120, 128):
                for before in (0, 1, 5, 11, 30, 59):
                    iv = ((1 << bits) - before & (1 << 128) - 1).to_bytes(16, "big")
                    self.equal(iv, 16 * 60)
                    self.equal(iv, 16 * 11)

    def test_counters_that_begin_anywhere_in_the_period(self) -> None:
        with self.small():
            for start in (0, 1, 31, 32, 33, 62, 63, 0xFFFF, 0x10000 - 24, (1 << 96) - 7):
                self.equal(start.to_bytes(16, "big"), 16 * 40)
                self.equal(start.to_bytes(16, "big"), 16 * 27)

    def test_offsets_within_and_beyond_a_block(self) -> None:
        with self.small():
            for offset in (
                0,
                1,
                15,
                16,
                17,
                16 * 40 - 1,
                16 * 40,
                (1 << 32) * 16 - 3,
                (1 << 128) * 16 - 5,
                (1 << 140) + 9,
            ):
                for length in (16 * 3 - 1, 16 * 30, 16 * 45 + 9):
                    self.equal(b"\xff" * 16, length, offset)

    def test_batches_of_the_real_size(self) -> None:
        iv, size = b"\xff" * 15 + b"\x07", 16 * sm4.BIT_BATCH
        whole = sm4.sm4_ctr(KEY, iv, bytes(size + 20000), 3)
        for at in (0, size // 2, size - 30, size + 19950):
            self.assertEqual(whole[at : at + 50], plain_sm4_ctr(KEY, iv, bytes(50), 3 + at))

    def test_any_kind_of_bytes_is_taken(self) -> None:
        data = bytes(range(256)) * 2
        for kind in (bytearray, memoryview, lambda b: memoryview(b).cast("I")):
            self.assertEqual(sm4.sm4_ctr(KEY, KEY, kind(data)), plain_sm4_ctr(KEY, KEY, data))

    def test_what_is_refused_is_refused_with_the_same_code(self) -> None:
        for key, iv, offset, code in (
            (KEY[:15], KEY, 0, "sm4.length.key"),
            (KEY, KEY + b"\0", 0, "sm4.length.iv"),
            (KEY, KEY, -1, "sm4.offset.range"),
        ):
            with self.assertRaises(UsageError) as caught:
                sm4.sm4_ctr(key, iv, bytes(1000), offset)
            self.assertEqual(caught.exception.code, code)


class Fnv(unittest.TestCase):
    def equal(self, data: bytes, h: int = OFFSET_BASIS) -> None:
        self.assertEqual(fnv.fnv1a64(data, h), plain_fnv1a64(data, h), (len(data), data[:4], h))

    def test_lengths_around_the_threshold_and_rows(self) -> None:
        data = random.Random(1).getrandbits(8 * 90000).to_bytes(90000, "little")
        least = fnv.ROWS[-1][0]
        for length in (0, 1, least - 1, least, least + 1, 5 * 16384 - 1, 5 * 16384, 5 * 16384 + 1):
            self.equal(data[:length])

    def test_extreme_data(self) -> None:
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF):
            for h in (OFFSET_BASIS, 0, (1 << 64) - 1):
                self.equal(bytes([byte]) * 65536, h)
        self.equal(b"\x00\xff" * 32768)

    def test_every_lowest_byte_of_the_hash_before(self) -> None:
        with mock.patch.object(fnv, "ROWS", ((0, 1 << 14),)):
            for low in range(0, 256, 7):
                self.equal(bytes(range(256)) * 64, 0x1234567890ABCD00 + low)

    def test_all_0xff_data_in_as_many_rows_as_go_together(self) -> None:
        with mock.patch.object(fnv, "ROWS", ((0, 1 << 14),)):
            self.equal(b"\xff" * ((1 << 14) * fnv.MOST_ROWS))

    def test_data_that_make_every_step_of_the_lowest_byte_large(self) -> None:
        h, steady = OFFSET_BASIS, bytearray()
        for x in (255, 0x80, 1, 254) * 4096:  # b is chosen so that l ^ b is x
            steady.append(h & 255 ^ x)
            h = (h ^ steady[-1]) * PRIME & (1 << 64) - 1
        with mock.patch.object(fnv, "ROWS", ((0, 1 << 14),)):
            self.assertEqual(fnv.fnv1a64(steady), h)

    def test_no_sum_overflows_its_lane(self) -> None:
        rows = fnv.MOST_ROWS
        for d in (255, -255):
            sums = [255 * rows, 0, 0, 0]
            for _ in range(rows):
                self.assertGreaterEqual(sums[0], 0)
                self.assertLess(sums[0] + 510, 1 << 16)  # 2 (x & b) comes first, then b goes
                sums[0] += d
                for i in (1, 2, 3):
                    sums[i] += sums[i - 1]
            self.assertLess(max(sums), 1 << 32)

    def test_groups_of_rows_follow_each_other(self) -> None:
        data = random.Random(2).getrandbits(8 * 7 * 16384).to_bytes(7 * 16384, "little")
        with mock.patch.multiple(fnv, ROWS=((0, 1 << 14),), MOST_ROWS=3):
            self.equal(data + b"the rest")

    def test_longer_rows_give_the_same(self) -> None:
        data = random.Random(3).getrandbits(8 << 17).to_bytes(1 << 17, "little")
        for size in (14, 15, 16, 17):
            with mock.patch.object(fnv, "ROWS", ((0, 1 << size),)):
                self.assertEqual(fnv.fnv1a64(data), plain_fnv1a64(data))

    def test_the_powers_that_the_proof_needs(self) -> None:
        for k in range(2, 20):
            e = pow(PRIME, 1 << k) - 1 if k < 8 else pow(PRIME, 1 << k, 1 << 128) - 1
            self.assertEqual(e % (1 << k + 2), 0)
        self.assertEqual(pow(pow(PRIME, 1 << 14, 1 << 64) - 1, 4, 1 << 64), 0)

    def test_any_kind_of_bytes_is_taken(self) -> None:
        data = bytes(range(256)) * 256
        for kind in (bytearray, memoryview, lambda b: memoryview(b).cast("I")):
            self.assertEqual(fnv.fnv1a64(kind(data)), plain_fnv1a64(data))


class Sm3(unittest.TestCase):
    def test_lengths_around_blocks_and_batches(self) -> None:
        data = bytes(i * i % 251 for i in range(64 * sm3.BATCH + 130))
        around = [*range(66), 119, 120, 127, 128, 129, 64 * sm3.BATCH - 1, 64 * sm3.BATCH, 64 * sm3.BATCH + 65]
        for length in around:
            self.assertEqual(sm3.SM3(data[:length]).digest(), PlainSM3(data[:length]).digest(), length)

    def test_pieces_and_copies(self) -> None:
        data = bytes(range(256)) * 2
        for cut in (0, 1, 63, 64, 65, 200):
            h = sm3.SM3(data[:cut])
            copy = h.copy()
            self.assertIs(type(copy), sm3.SM3)
            h.update(memoryview(data)[cut:])
            self.assertEqual(h.hexdigest(), PlainSM3(data).hexdigest())
            copy.update(b"more")
            self.assertEqual(copy.digest(), PlainSM3(data[:cut] + b"more").digest())
            self.assertEqual((h.name, h.digest_size, h.block_size), ("sm3", 32, 64))

    def test_extreme_words(self) -> None:
        for byte in (0x00, 0xFF, 0x80, 0x7F):
            message = bytes([byte]) * 200
            self.assertEqual(sm3.SM3(message).digest(), PlainSM3(message).digest())
            self.assertEqual(sm3.sm3_many([message] * 5), [PlainSM3(message).digest()] * 5)

    def test_many_messages_of_one_length_and_of_several(self) -> None:
        rng = random.Random(4)
        for length in (0, 1, 55, 56, 63, 64, 65, 119, 120):
            for count in (1, sm3.FEW - 1, sm3.FEW, sm3.FEW + 1, 11):
                messages = [
                    rng.getrandbits(8 * length).to_bytes(length, "little") if length else b"" for _ in range(count)
                ]
                self.assertEqual(sm3.sm3_many(messages), [PlainSM3(m).digest() for m in messages])
        messages = [bytes([i]) * (i * i % 7) for i in range(40)]
        self.assertEqual(sm3.sm3_many(messages), [PlainSM3(m).digest() for m in messages])
        self.assertEqual(sm3.sm3_many([]), [])

    def test_more_than_fit_side_by_side(self) -> None:
        messages = [bytes([i]) * 70 for i in range(25)]
        want = [PlainSM3(m).digest() for m in messages]
        for limits in ({"MANY": 7}, {"MANY": 1 << 20, "MOST_BYTES": 600}, {"MOST_BYTES": 100}):
            with mock.patch.multiple(sm3, **limits):
                self.assertEqual(sm3.sm3_many(messages), want)


class Sm2(unittest.TestCase):
    d, e, k, r, s, P = sm2._D, sm2._E, sm2._K, sm2._R, sm2._S, sm2._P

    def same(self, quick: Callable[..., Any], plain: Callable[..., Any], *args: Any) -> None:
        said = []
        for function in (quick, plain):
            try:
                said.append(function(*args))
            except SignatureError as error:
                said.append((error.code, str(error)))
        self.assertEqual(said[0], said[1], args)

    def test_multiples_of_g_with_every_kind_of_digit(self) -> None:
        n, edge = plain_sm2.n, 1 << sm2.WIDTH - 1
        some = [1, 2, edge - 1, edge, edge + 1, 2 * edge - 1, 2 * edge, n - 1, n - 2, n - edge, 1 << 255, 0, n]
        some += [int("1" + "0" * 31, 16), int("7" * 64, 16) % n, int("820" * 21, 16)]
        for k in some:
            S = sm2._table_of_G().add_to(sm2.INFINITY, k)
            self.assertEqual(sm2.affine([S])[0] if S[2] else None, plain_sm2.multiply(k, plain_sm2.G), k)

    def test_multiples_of_a_point_seen_once(self) -> None:
        for k in (1, 2, 3, 15, 16, 17, 31, 32, 33, plain_sm2.n - 1, plain_sm2.n, int("8" * 63, 16)):
            for width in (sm2.WINDOW, sm2.WIDE_WINDOW):
                S = sm2.sum_of_multiples((k, sm2.odd_multiples(self.P, width), width))
                self.assertEqual(sm2.affine([S])[0] if S[2] else None, plain_sm2.multiply(k, self.P), k)

    def test_sums_of_equal_and_opposite_points(self) -> None:
        odd, n = sm2.odd_multiples(plain_sm2.G, 5), plain_sm2.n
        for a, b in ((5, 5), (5, n - 5), (1, 1), (7, n - 7), (1, 2)):
            S = sm2.sum_of_multiples((a, odd, 5), (b, odd, 5))
            self.assertEqual(sm2.affine([S])[0] if S[2] else None, plain_sm2.multiply((a + b) % n, plain_sm2.G))
        G = plain_sm2.G
        self.assertEqual(sm2.add((*G, 1), (G[0], plain_sm2.p - G[1])), sm2.INFINITY)
        self.assertEqual(sm2.affine([sm2.add((*G, 1), G)])[0], plain_sm2.multiply(2, G))
        self.assertEqual(sm2.double(sm2.INFINITY)[2], 0)

    def test_public_keys(self) -> None:
        for d in (-1, 0, 1, 2, self.d, plain_sm2.n - 2, plain_sm2.n - 1, plain_sm2.n):
            self.same(sm2.public_key, plain_sm2.public_key, d)

    def test_signatures_with_a_nonce_and_what_the_standard_throws_away(self) -> None:
        n, d, k = plain_sm2.n, self.d, self.k
        x1 = plain_sm2.multiply(k, plain_sm2.G)[0]  # type: ignore[index]
        zero_s = (k * pow(d, -1, n) - x1) % n  # r d = k
        for e in (self.e, 0, n, (1 << 256) - 1, -x1 % n, (n - k - x1) % n, zero_s):
            self.same(sm2.sign_with_nonce, plain_sm2.sign_with_nonce, d, e, k)
        for key, nonce in ((d, 0), (d, 1), (d, n - 1), (d, n), (0, 5), (n - 2, 5), (n - 1, 5)):
            self.same(sm2.sign_with_nonce, plain_sm2.sign_with_nonce, key, self.e, nonce)

    def test_verification_says_the_same_of_right_and_wrong_signatures(self) -> None:
        n, e, r, s = plain_sm2.n, self.e, self.r, self.s
        infinity = -r * self.d * pow(1 + self.d, -1, n) % n
        check = sm2.digest_checker(self.P)

        def known(_: Any, *args: int) -> None:
            check(*args)

        for case in (
            (e, r, s), (e + n, r, s), (e + 1, r, s), (e, r + 1, s), (e, r, s + 1), (e, 0, s), (e, r, 0), (e, n, s),
            (e, r, n), (e, r, n - r), (e, -r, s), (e, r, infinity), (0, 1, 1), (e, n - 1, n - 1),
        ):  # fmt: skip
            self.same(sm2.check_digest, plain_sm2.check_digest, self.P, *case)
            self.same(known, plain_sm2.check_digest, self.P, *case)

    @thorough
    def test_keys_that_meet_the_tables_of_g(self) -> None:
        G, p, n = plain_sm2.G, plain_sm2.p, plain_sm2.n
        for d in (1, 2, 3, n - 2):
            P = plain_sm2.public_key(d)
            r, s = plain_sm2.sign_with_nonce(d, self.e, self.k)
            for case in ((self.e, r, s), (self.e, s, r)):
                self.same(sm2.check_digest, plain_sm2.check_digest, P, *case)
                self.same(lambda P, *case: sm2.digest_checker(P)(*case), plain_sm2.check_digest, P, *case)
        for P in ((G[0], p - G[1]), (1, 1)):  # -G, which no private key has; and a point off the curve
            self.same(sm2.check_digest, plain_sm2.check_digest, P, self.e, self.r, self.s)
            self.same(lambda P, *case: sm2.digest_checker(P)(*case), plain_sm2.check_digest, P, self.e, self.r, self.s)

    def test_an_x_of_n_and_more_is_found_below_p(self) -> None:
        n, p = plain_sm2.n, plain_sm2.p
        for x in (n, n + 5, p - 1):
            sm2._judge((x * 9 % p, 0, 3), 7, (7 + x) % n)
            with self.assertRaises(SignatureError):
                sm2._judge((x * 9 % p, 0, 3), 7, (8 + x) % n)


if __name__ == "__main__":
    unittest.main()
