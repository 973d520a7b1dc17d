// What the crate tch leaves out of libtorch: a tensor over memory of somebody else that tells its owner when
// the last reference to it is gone, and which stream torch uses.
//
// No exception leaves a function: each writes what is wrong to `message`, of `capacity` bytes.

#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>

#include <ATen/DLConvertor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace {

template <typename Result, typename Run>
Result guarded(Result failed, char *message, std::size_t capacity, Run run) noexcept {
    try {
        return run();
    } catch (const c10::Error &error) {
        // Without the stack, which says nothing to whoever reads it.
        std::snprintf(message, capacity, "%s", error.what_without_backtrace());
    } catch (const std::exception &error) {
        std::snprintf(message, capacity, "%s", error.what());
    } catch (...) {
        std::snprintf(message, capacity, "an exception of an unknown type");
    }
    return failed;
}

}  // namespace

extern "C" {

// Returns a new tensor over the memory of `managed`, or null. Takes `managed` in either case. Its deleter is
// called once, on whatever thread the last reference to the storage goes: that of a tensor, a view, or a
// graph of autograd.
at::Tensor *percolator_tch_from_dlpack(DLManagedTensor *managed, char *message, std::size_t capacity) noexcept {
    return guarded<at::Tensor *>(nullptr, message, capacity, [&] {
        // Whether libtorch throws before or after it has made the storage, the last copy of `owner` releases.
        std::shared_ptr<DLManagedTensor> owner(managed, [](DLManagedTensor *last) { last->deleter(last); });
        return new at::Tensor(at::fromDLPack(managed, [owner](void *) {}));
    });
}

// Whether torch's current stream of a GPU, on this thread, is the default stream: 1 or 0; -1 is a failure.
int percolator_tch_is_on_default_stream(int device, char *message, std::size_t capacity) noexcept {
    return guarded<int>(-1, message, capacity, [&] {
        const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(device));
        const c10::impl::VirtualGuardImpl guard(at::kCUDA);
        return guard.getStream(gpu) == guard.getDefaultStream(gpu) ? 1 : 0;
    });
}

}
