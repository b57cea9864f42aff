"""The inner loops, compiled for the machine they run on at first use and cached on disk.

One register block does all the work: ROWS samples against COLUMNS samples, the squared distances (or inner
products) of all pairs kept in vector registers while the coordinates stream by, the exponential taken there
and then, and only sums leaving the registers. It is written in explicit vectors because loops that the
compiler vectorises by itself use half of a 512-bit register and a scalar ``exp``.

Layout ("packed"): samples come in groups of ROWS (left side) or COLUMNS (right side), and a group is stored
coordinate by coordinate, so that every load is contiguous. Values are scaled such that the kernel is 2^x.
"""

from math import factorial, log

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from stackfu.embedding import _numpy_kernels
from stackfu.jit import njit

_features = binding.get_host_cpu_features()
_arm = binding.get_process_triple().startswith(("aarch64", "arm64"))
# Sixteen accumulators fit where there are 32 vector registers, eight where there are 16.
ROWS = 8 if _features.get("avx512f") or _arm else 4
VECTOR_BYTES = 64 if _features.get("avx512f") else 32 if _features.get("avx") else 16
VECTORS = 2
COLUMNS = VECTORS * VECTOR_BYTES // 4  # for float32; float64 uses twice as many vectors of half the length

#: Entries of the arrays of a call up to which NumPy is faster than compiling.
NUMPY_IS_FAST = 1_000_000

_INDEX = ir.IntType(64)
# Coordinates summed up on their own before they join the total, which bounds the growth of rounding errors
# with d.
_STRETCH = 64


class _Vectors:
    """Vector instructions of one floating-point type, as short as arithmetic."""

    def __init__(self, context, builder, real):
        self.context, self.builder = context, builder
        self.single = real == types.float32
        self.lanes = VECTOR_BYTES // (4 if self.single else 8)
        scalar = ir.FloatType() if self.single else ir.DoubleType()
        self.vector = ir.VectorType(scalar, self.lanes)
        self.integers = ir.VectorType(ir.IntType(32 if self.single else 64), self.lanes)
        self.doubles = ir.VectorType(ir.DoubleType(), self.lanes)
        name = f"llvm.fmuladd.v{self.lanes}f{32 if self.single else 64}"
        signature = ir.FunctionType(self.vector, [self.vector] * 3)
        self._fma = cgutils.get_or_insert_function(builder.module, signature, name)

    def constant(self, value):
        return ir.Constant(
            self.vector, [float(np.float32(value)) if self.single else float(value)] * self.lanes
        )

    def at(self, pointer, index):
        return self.builder.gep(
            pointer, [index if isinstance(index, ir.Value) else ir.Constant(_INDEX, index)]
        )

    def load(self, pointer, index):
        where = self.builder.bitcast(self.at(pointer, index), self.vector.as_pointer())
        return self.builder.load(where, align=4 if self.single else 8)

    def broadcast(self, pointer, index):
        return self.splat(self.builder.load(self.at(pointer, index)))

    def splat(self, value):
        """A vector of this scalar; a double is rounded to the type of the vector."""
        if self.single and value.type == ir.DoubleType():
            value = self.builder.fptrunc(value, self.vector.element)
        undefined = ir.Constant(self.vector, ir.Undefined)
        zero = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(undefined, value, zero)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, undefined, zeros)

    def fma(self, a, b, c):
        return self.builder.call(self._fma, [a, b, c])

    def power_of_two(self, x):
        """Return (s, q) with 2^x = s (1 + q), s a power of two, for x <= 1; about 0 for very negative x.

        1 - 2^x = (1 - s) - s q then keeps its relative accuracy where 2^x is near 1.
        """
        b = self.builder
        mantissa, bias, degree = (23, 127, 6) if self.single else (52, 1023, 12)
        smallest = self.constant(1 - bias)
        x = b.select(b.fcmp_ordered(">", x, smallest), x, smallest)
        # Adding 1.5 * 2^mantissa rounds x to a whole number i and leaves i + bias in the low bits.
        magic = self.constant(1.5 * 2.0**mantissa + bias)
        shifted = b.fadd(x, magic)
        f = b.fsub(x, b.fsub(shifted, magic))
        polynomial = self.constant(log(2) ** degree / factorial(degree))
        for k in range(degree - 1, 0, -1):
            polynomial = self.fma(polynomial, f, self.constant(log(2) ** k / factorial(k)))
        shift = ir.Constant(self.integers, [mantissa] * self.lanes)
        s = b.bitcast(b.shl(b.bitcast(shifted, self.integers), shift), self.vector)
        return s, b.fmul(polynomial, f)


def _register_block(v, pointers, unit):
    """Emit acc[r][c] = left_start[r] + right_start[c] + left.right, or - |(left - right) unit|^2."""
    left, right, left_start, right_start, d = pointers
    b, vectors = v.builder, COLUMNS // v.lanes
    block = [(r, c) for r in range(ROWS) for c in range(vectors)]
    total = {rc: cgutils.alloca_once(b, v.vector) for rc in block}
    for r in range(ROWS):
        start = v.broadcast(left_start, r)
        for c in range(vectors):
            b.store(b.fadd(start, v.load(right_start, c * v.lanes)), total[r, c])
    part = {rc: cgutils.alloca_once(b, v.vector) for rc in block}
    stretch = ir.Constant(_INDEX, _STRETCH)
    with cgutils.for_range_slice(b, ir.Constant(_INDEX, 0), d, stretch) as (begin, _):
        for rc in block:
            b.store(v.constant(0.0), part[rc])
        left_at = v.at(left, b.mul(begin, ir.Constant(_INDEX, ROWS)))
        right_at = v.at(right, b.mul(begin, ir.Constant(_INDEX, COLUMNS)))
        rest = b.sub(d, begin)
        with cgutils.for_range(b, b.select(b.icmp_signed("<", rest, stretch), rest, stretch)) as loop:
            left_k = v.at(left_at, b.mul(loop.index, ir.Constant(_INDEX, ROWS)))
            right_k = v.at(right_at, b.mul(loop.index, ir.Constant(_INDEX, COLUMNS)))
            columns = [v.load(right_k, c * v.lanes) for c in range(vectors)]
            for r in range(ROWS):
                row = v.broadcast(left_k, r)
                for c in range(vectors):
                    factor, other = row, columns[c]
                    if unit is not None:
                        factor = b.fmul(b.fsub(row, columns[c]), unit)
                        other = b.fneg(factor)
                    b.store(v.fma(other, factor, b.load(part[r, c])), part[r, c])
        for rc in block:
            b.store(b.fadd(b.load(total[rc]), b.load(part[rc])), total[rc])
    return [[b.load(total[r, c]) for c in range(vectors)] for r in range(ROWS)]


def _block_pointers(context, builder, signature, args):
    """Pointers to group p of the left side and group q of the right side, and the dimension."""
    left, left_start, p, right, right_start, q, d = args[:7]
    data = [context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 1, 3, 4)]
    steps = [
        (p, builder.mul(d, ir.Constant(_INDEX, ROWS))),
        (p, ir.Constant(_INDEX, ROWS)),
        (q, builder.mul(d, ir.Constant(_INDEX, COLUMNS))),
        (q, ir.Constant(_INDEX, COLUMNS)),
    ]
    left, left_start, right, right_start = (
        builder.gep(pointer, [builder.mul(group, step)])
        for pointer, (group, step) in zip(data, steps, strict=True)
    )
    return left, right, left_start, right_start, d


def _add_complements(direct):
    def typed(typingctx, left, left_start, p, right, right_start, q, d, count, sums, unit):
        """sums[c] += sum over the ``count`` rows of group p that are not padding of 1 - 2^acc."""

        def codegen(context, builder, signature, args):
            v = _Vectors(context, builder, signature.args[0].dtype)
            unit = v.splat(args[9]) if direct else None
            acc = _register_block(v, _block_pointers(context, builder, signature, args), unit)
            sums_data = context.make_array(signature.args[8])(context, builder, args[8]).data
            counts = v.splat(args[7])
            for c in range(len(acc[0])):
                powers = products = v.constant(0.0)
                for r in range(ROWS):
                    s, q = v.power_of_two(acc[r][c])
                    powers = builder.fadd(powers, s)
                    products = v.fma(s, q, products)
                complement = builder.fsub(builder.fsub(counts, powers), products)
                if v.single:
                    complement = builder.fpext(complement, v.doubles)
                where = builder.bitcast(v.at(sums_data, c * v.lanes), v.doubles.as_pointer())
                builder.store(builder.fadd(builder.load(where, align=8), complement), where, align=8)
            return context.get_dummy_value()

        return types.void(left, left_start, p, right, right_start, q, d, count, sums, unit), codegen

    return typed


add_complements_expanded = intrinsic(_add_complements(direct=False))
add_complements_direct = intrinsic(_add_complements(direct=True))


@intrinsic
def store_squared_distances(typingctx, left, left_start, p, right, right_start, q, d, out):
    """out[r, c] = |left[r] - right[c]|^2 - left_start[r] - right_start[c] for one register block."""

    def codegen(context, builder, signature, args):
        v = _Vectors(context, builder, signature.args[0].dtype)
        acc = _register_block(v, _block_pointers(context, builder, signature, args), v.constant(1.0))
        data = context.make_array(signature.args[7])(context, builder, args[7]).data
        for r in range(ROWS):
            for c in range(len(acc[0])):
                where = builder.bitcast(v.at(data, r * COLUMNS + c * v.lanes), v.vector.as_pointer())
                builder.store(builder.fneg(acc[r][c]), where, align=4 if v.single else 8)
        return context.get_dummy_value()

    return types.void(left, left_start, p, right, right_start, q, d, out), codegen


@njit(nogil=True, cache=True, substitute=_numpy_kernels.add_column_sums, small=NUMPY_IS_FAST)
def add_column_sums(rows, out):
    """out += sum of the rows."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            out[k] += rows[i, k]


@njit(
    nogil=True,
    cache=True,
    fastmath={"reassoc", "contract"},
    substitute=_numpy_kernels.sum_of_squares,
    small=NUMPY_IS_FAST,
)
def sum_of_squares(rows, centre, scale):
    """Sum over the rows of |(row - centre) scale|^2, which neither underflows nor overflows before it has to."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            difference = (rows[i, k] - centre[k]) * scale
            total += difference * difference
    return total


@njit(
    nogil=True,
    cache=True,
    fastmath={"reassoc", "contract"},
    substitute=_numpy_kernels.pack_rows,
    small=NUMPY_IS_FAST,
)
def pack_rows(rows, centre, scale, first, expanded, values, halves):
    """Write (rows - centre) * scale to the places from ``first`` on, and -|value|^2 / 2 if ``expanded``."""
    width, d = values.shape[2], rows.shape[1]
    scaled = np.empty((width, d), dtype=values.dtype)
    row = 0
    while row < rows.shape[0]:
        group, place = divmod(first + row, width)
        count = min(width - place, rows.shape[0] - row)
        for i in range(count):
            square = 0.0
            for k in range(d):
                scaled[i, k] = (rows[row + i, k] - centre[k]) * scale
            for k in range(d):
                value = np.float64(scaled[i, k])  # as rounded
                square += value * value
            halves[group, place + i] = -0.5 * square if expanded else 0.0
        for k in range(d):
            for i in range(count):
                values[group, k, place + i] = scaled[i, k]
        row += count


@njit(nogil=True, cache=True, substitute=_numpy_kernels.sum_complements, small=NUMPY_IS_FAST)
def sum_complements(
    left,
    left_start,
    counts,
    run_starts,
    run_clients,
    right,
    right_start,
    d,
    q_start,
    q_stop,
    first_row,
    starts,
    first,
    direct,
    unit,
    out,
):
    """Add the sums of 1 - k of each run of left groups with each client on the right to ``out``.

    Run u is the groups ``run_starts[u] : run_starts[u + 1]``, all of one client, whose sums go to row
    ``run_clients[u]`` of ``out``. Right groups ``q_start : q_stop`` hold the rows from
    ``first_row + q_start * COLUMNS`` on of the stack that ``starts`` cuts into clients; column 0 of ``out``
    belongs to client ``first``.
    """
    sums = np.empty(COLUMNS)
    n = starts[-1]
    client = first
    for q in range(q_start, q_stop):
        begin = first_row + q * COLUMNS
        end = min(begin + COLUMNS, n)
        while starts[client + 1] <= begin:
            client += 1
        for run in range(len(run_clients)):
            sums[:] = 0.0
            if direct:
                for p in range(run_starts[run], run_starts[run + 1]):
                    add_complements_direct(
                        left, left_start, p, right, right_start, q, d, counts[p], sums, unit
                    )
            else:
                for p in range(run_starts[run], run_starts[run + 1]):
                    add_complements_expanded(
                        left, left_start, p, right, right_start, q, d, counts[p], sums, unit
                    )
            column, owner = begin, client
            while column < end:
                stop = min(end, starts[owner + 1])
                total = 0.0
                for k in range(column - begin, stop - begin):
                    total += sums[k]
                out[run_clients[run], owner - first] += total
                column = stop
                owner += 1


@njit(nogil=True, cache=True, substitute=_numpy_kernels.count_distances, small=NUMPY_IS_FAST)
def count_distances(
    left, left_start, right, right_start, d, n, p_start, p_stop, low, width, bins, found, kept
):
    """Histogram the squared distances of all pairs of rows i < j, i in the left groups ``p_start : p_stop``.

    ``bins[0]`` counts those below ``low``, ``bins[1 + k]`` those in ``low + [k, k + 1) width``, ``bins[-1]``
    the rest. Those with ``low <= value < low + (len(bins) - 2) width`` are also written to ``found`` while
    it has room. Returns how many were written, starting from ``kept``.
    """
    block = np.empty((ROWS, COLUMNS))
    last = len(bins) - 1
    for p in range(p_start, p_stop):
        for q in range(p * ROWS // COLUMNS, (n + COLUMNS - 1) // COLUMNS):
            store_squared_distances(left, left_start, p, right, right_start, q, d, block)
            for r in range(ROWS):
                i = p * ROWS + r
                if i >= n:
                    break
                for c in range(max(0, i + 1 - q * COLUMNS), min(COLUMNS, n - q * COLUMNS)):
                    value = block[r, c]
                    if value < low:
                        bins[0] += 1
                    else:
                        place = (value - low) / width
                        if place < last - 1:
                            bins[1 + int(place)] += 1
                            if kept < len(found):
                                found[kept] = value
                                kept += 1
                        else:
                            bins[last] += 1
    return kept
