/* Stands in for cuBLAS and cuRAND: what candle calls when it makes a device, and nothing that computes. */

typedef struct { int unused; } handle;
static handle only;

int cublasCreate_v2(handle **made) { *made = &only; return 0; }
int cublasDestroy_v2(handle *made) { return made != &only; }
int cublasSetStream_v2(handle *made, void *stream) { (void)stream; return made != &only; }

int curandCreateGenerator(handle **made, int kind) { (void)kind; *made = &only; return 0; }
int curandDestroyGenerator(handle *made) { return made != &only; }
int curandSetPseudoRandomGeneratorSeed(handle *made, unsigned long long seed) { (void)seed; return made != &only; }
int curandSetStream(handle *made, void *stream) { (void)stream; return made != &only; }

/* Calls of the driver that cudarc can make, that nothing here makes, and that the stand-in driver has not. */
enum { NOT_SUPPORTED = 801 };
int cuMemcpyPeerAsync(void) { return NOT_SUPPORTED; }
int cuModuleLoad(void) { return NOT_SUPPORTED; }
int cuCtxDestroy_v2(void) { return NOT_SUPPORTED; }
