// What a device does to a batch: mirror, subtract the mean, scale, and write the elements in the batch's type and
// order. The host has cut the records' windows, and sends them as they lie in the records.
//
// It is bit for bit what src/transform/kernels.rs does on the host, but for what a NaN's bits are.
//
// transform.ptx is made of this file by `python3 src/device/cuda/kernels/compile.py`; say that after every change.

typedef unsigned char u8;
typedef unsigned short u16;

// Of one record: where its window begins in its image, in pixels, and whether it is mirrored.
struct Cut {
    unsigned top;
    unsigned left;
    unsigned mirrored;
};

// Of the whole batch. Sizes are in pixels; rows of one record, and elements of one row, are fewer than 2^31.
struct Job {
    unsigned records;
    unsigned channels;
    unsigned height;
    unsigned width;
    // From the mean of a channel to that of the next: the elements of a plane of the mean image, 1 where there is one
    // value a channel, 0 where there is one for all.
    unsigned mean_step;
    // Of the mean image, or 0 where there is none.
    unsigned mean_width;
    // Whether a pixel's channels lie side by side: NHWC.
    unsigned interleaved;
    float scale;
};

// Results are written once and read by somebody else: f32 as it is, 16 bits rounded to nearest even.
struct F32 {
    typedef float Bits;
    static __device__ Bits of(float value) { return value; }
};

struct F16 {
    typedef u16 Bits;
    static __device__ Bits of(float value)
    {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
    }
};

// By integers: the instruction for it came late.
struct Bf16 {
    typedef u16 Bits;
    static __device__ Bits of(float value)
    {
        unsigned bits = __float_as_uint(value);
        if ((bits & 0x7fffffff) > 0x7f800000)
            return (bits >> 16) | 0x40;
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
};

// An element of the result. Two roundings, as on the host: never one fused operation.
template <typename To, typename From>
struct Element {
    typedef typename To::Bits Bits;
    static __device__ Bits of(From pixel, float mean, float scale)
    {
        return To::of(__fmul_rn(__fsub_rn((float)pixel, mean), scale));
    }
};

// Bytes to bytes: they have neither mean nor scale.
struct U8 {
    typedef u8 Bits;
};

template <>
struct Element<U8, u8> {
    typedef u8 Bits;
    static __device__ Bits of(u8 pixel, float, float) { return pixel; }
};

// A warp takes a row of the result at a time, and its threads neighbouring elements: what is written is written
// side by side. A row of NCHW is of one channel, a row of NHWC of all.
//
// staged: [records][channels][height][width]
// means:  [channels][mean_height][mean_width], [channels], or [1]
// cuts:   [records]
// out:    [records][channels][height][width], or [records][height][width][channels]
template <typename To, typename From>
static __device__ void transform(const From *__restrict__ staged, const float *__restrict__ means,
                                 const Cut *__restrict__ cuts, typename To::Bits *__restrict__ out, Job job)
{
    unsigned side = job.interleaved ? job.channels : 1;
    unsigned rows = job.interleaved ? job.height : job.channels * job.height;
    size_t plane = (size_t)job.height * job.width;
    for (unsigned record = blockIdx.y; record < job.records; record += gridDim.y) {
        Cut cut = cuts[record];
        const From *image = staged + (size_t)record * job.channels * plane;
        for (unsigned row = blockIdx.x * blockDim.y + threadIdx.y; row < rows; row += gridDim.x * blockDim.y) {
            unsigned first = job.interleaved ? 0 : row / job.height;
            unsigned y = job.interleaved ? row : row % job.height;
            typename To::Bits *to = out + (size_t)record * job.channels * plane + (size_t)row * job.width * side;
            for (unsigned i = threadIdx.x; i < job.width * side; i += blockDim.x) {
                unsigned c = first + (side > 1 ? i % side : 0);
                unsigned x = side > 1 ? i / side : i;
                if (cut.mirrored)
                    x = job.width - 1 - x;
                From pixel = image[c * plane + (size_t)y * job.width + x];
                size_t place = job.mean_width ? (size_t)(cut.top + y) * job.mean_width + cut.left + x : 0;
                to[i] = Element<To, From>::of(pixel, means[(size_t)c * job.mean_step + place], job.scale);
            }
        }
    }
}

#define KERNEL(name, To, From)                                                                                    \
    extern "C" __global__ void name(const From *staged, const float *means, const Cut *cuts, To::Bits *out,      \
                                    Job job)                                                                      \
    {                                                                                                             \
        transform<To, From>(staged, means, cuts, out, job);                                                       \
    }

KERNEL(u8_to_u8, U8, u8)
KERNEL(u8_to_f32, F32, u8)
KERNEL(u8_to_f16, F16, u8)
KERNEL(u8_to_bf16, Bf16, u8)
KERNEL(f32_to_f32, F32, float)
KERNEL(f32_to_f16, F16, float)
KERNEL(f32_to_bf16, Bf16, float)
