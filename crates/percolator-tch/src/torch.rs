//! The calls of libtorch that the crate tch lacks: `torch.cpp`.

#![expect(unsafe_code, reason = "libtorch is C++")]

use std::ffi::{CStr, c_char, c_int};

use percolator::dlpack::{DLManagedTensor, DlpackTensor};
use tch::Tensor;
use torch_sys::C_tensor;

/// The longest message that is kept of a failure, with the zero at its end.
const MESSAGE_BYTES: usize = 1024;

unsafe extern "C" {
    fn percolator_tch_from_dlpack(
        managed: *mut DLManagedTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> *mut C_tensor;

    fn percolator_tch_is_on_default_stream(device: c_int, message: *mut c_char, capacity: usize) -> c_int;
}

/// Makes a tensor of torch's over the memory of a DLPack tensor. The memory is released when nothing in
/// libtorch refers to it any more, on whatever thread that happens.
///
/// For a tensor on a GPU, torch's stream waits for it already.
pub(crate) fn from_dlpack(tensor: DlpackTensor) -> Result<Tensor, String> {
    // SAFETY: the tensor is given up here, and what it describes is a batch's memory, until its deleter is
    // called.
    unsafe { from_raw(tensor.into_raw_unversioned()) }
}

/// Makes a tensor over the memory that `managed` describes. Its deleter is called once, even after an error.
///
/// # Safety
///
/// `managed` is valid, its deleter may be called on any thread, and the caller gives it up. Until the deleter
/// is called, its memory is there, and nobody else uses it.
unsafe fn from_raw(managed: *mut DLManagedTensor) -> Result<Tensor, String> {
    let mut message = [0; MESSAGE_BYTES];
    // SAFETY: as the caller promises; the function calls the deleter when nothing refers to the memory, or
    // before it returns null. It writes a text of at most this many bytes.
    let made = unsafe { percolator_tch_from_dlpack(managed, message.as_mut_ptr(), MESSAGE_BYTES) };
    if made.is_null() {
        return Err(text(&message));
    }
    // SAFETY: it is a new `at::Tensor` that nobody else has; tch deletes it.
    Ok(unsafe { Tensor::from_ptr(made) })
}

/// Whether torch's current stream of a GPU is the default one, which the driver calls null.
pub(crate) fn is_on_default_stream(gpu: usize) -> Result<bool, String> {
    let mut message = [0; MESSAGE_BYTES];
    let number = i8::try_from(gpu).map_err(|_| format!("torch counts no GPU {gpu}"))?;
    // SAFETY: the function writes a text of at most this many bytes.
    let answer =
        unsafe { percolator_tch_is_on_default_stream(number.into(), message.as_mut_ptr(), MESSAGE_BYTES) };
    if answer < 0 { Err(text(&message)) } else { Ok(answer == 1) }
}

/// The text that a function has written.
fn text(message: &[c_char; MESSAGE_BYTES]) -> String {
    // SAFETY: the buffer was all zeros, and whatever was written to it ends with one.
    let text = unsafe { CStr::from_ptr(message.as_ptr()) };
    text.to_string_lossy().trim_end().to_owned()
}

#[cfg(test)]
mod tests;
