"""Quick versions of the hot operations: the same names, arguments and results as the plain ones in crypto/ and quant/.

`kernels` is their only caller. Delete the folder and all still works, only slower. Each file begins with the trick it
plays and why the result is equal, and ends with CHECKS: for each operation a call and the CRC-32 that its result must
have, which is looked at before the first use. Everything is the standard library's own: what makes it quick is that one
operation on an integer of some kilobytes, one bytes.translate or one strided slice stands for thousands of loops.

Work is done in pieces, so that what is needed beside input and output stays far below 64 MiB whatever comes in. Lanes in
integers are little-endian on every host; only an array('f') is in host order.
"""
