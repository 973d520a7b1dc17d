// What stands for a training step of a known length.
//
// spin.ptx is made of this file by `python3 src/device/cuda/kernels/compile.py`; say that after every change.

extern "C" __global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}
