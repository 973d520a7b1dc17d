//! Modules and kernels: those of a module's PTX, and functions of this process that a test registers by name,
//! one of which is built in.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use crate::abi::{Answer, Code, Handle, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE, NOT_FOUND, Out, put};
use crate::bytes::{arguments, text};
use crate::call::{Call, Needs, call};
use crate::clocks::Use;
use crate::memory::{Found, Owner};
use crate::ptx::{self, Entry, Launch, Region};
use crate::streams::Work;
use crate::world::{Kind, World};

/// A kernel on the CPU: takes a pointer to each argument, as cuLaunchKernel does, and six dimensions, first
/// the grid's and then the block's. It runs once a launch, on the thread of the stream.
pub(crate) type Body = unsafe extern "C" fn(*const *const c_void, *const u32);

/// A kernel's parameter, one word of its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// `4`, `8`, ...: a value of this many bytes.
    Value(usize),
    /// `r`, `w`: the address of device memory that it reads, or writes (and may read).
    Buffer { writes: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) body: Body,
    pub(crate) parameters: Vec<Parameter>,
}

/// A module of a device.
#[derive(Debug)]
pub(crate) struct Module {
    device: usize,
    /// `None` if it has whatever is registered.
    entries: Option<Vec<Arc<Entry>>>,
}

#[derive(Clone, Debug)]
enum Runs {
    Registered(Kernel),
    Ptx(Arc<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    runs: Runs,
    module: Handle,
    device: usize,
}

/// Reads a signature: the parameters' words, separated by commas.
pub(crate) fn signature(text: &str) -> Option<Vec<Parameter>> {
    let parameter = |word: &str| match word {
        "r" => Some(Parameter::Buffer { writes: false }),
        "w" => Some(Parameter::Buffer { writes: true }),
        size => size.parse().ok().map(Parameter::Value),
    };
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(parameter).collect()
}

/// The built-in kernel `spin(microseconds: u32)`, which only takes time.
unsafe extern "C" fn spin(arguments: *const *const c_void, _dims: *const u32) {
    // SAFETY: its signature has one parameter.
    let argument = unsafe { arguments.read() };
    // SAFETY: the parameter has 4 bytes.
    let micros = unsafe { argument.cast::<u32>().read_unaligned() };
    std::thread::sleep(Duration::from_micros(u64::from(micros)));
}

impl World {
    fn kernel(&self, name: &str) -> Option<Kernel> {
        if name == "spin" {
            return Some(Kernel { body: spin, parameters: vec![Parameter::Value(4)] });
        }
        self.kernels.get(name).cloned()
    }

    /// The kernels of a module's text.
    fn entries(&mut self, text: &str) -> Result<Vec<Arc<Entry>>, Code> {
        match ptx::parse(text) {
            Ok(entries) => Ok(entries.into_iter().map(Arc::new).collect()),
            Err(problem) => {
                let words = format!("not PTX: line {}: {}", problem.line, problem.words);
                self.ledger.violation(words);
                Err(INVALID_PTX)
            }
        }
    }

    pub(crate) fn destroy_modules(&mut self, device: usize) -> usize {
        let gone: Vec<Handle> =
            self.modules.iter().filter(|(_, on)| on.device == device).map(|(&module, _)| module).collect();
        for &module in &gone {
            self.unload(module);
        }
        gone.len()
    }

    fn unload(&mut self, module: Handle) {
        self.modules.remove(&module);
        self.bury(module);
        let functions: Vec<Handle> = self
            .functions
            .iter()
            .filter(|(_, function)| function.module == module)
            .map(|(&handle, _)| handle)
            .collect();
        for function in functions {
            self.functions.remove(&function);
            self.bury(function);
        }
    }
}

/// An empty text makes a module with every registered kernel. Any other text is PTX, and the module has its
/// kernels and no others; a text that is not understood is a violation, which names the line, and
/// CUDA_ERROR_INVALID_PTX. Cubins and fat binaries are not supported.
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(out: Out<'_, Handle>, image: *const c_void) -> u32 {
    call("cuModuleLoadData", Needs::Context, |call| {
        let text = text(image.cast()).ok_or(INVALID_VALUE)?;
        let entries = if text.is_empty() { None } else { Some(call.entries(&text)?) };
        let (module, device) = (call.handle(Kind::Module), call.device);
        call.modules.insert(module, Module { device, entries });
        put(out, module)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> u32 {
    call("cuModuleUnload", Needs::Release, |call| {
        if !call.modules.contains_key(&module) {
            return Err(call.bad_handle("module", module, "cuModuleUnload"));
        }
        call.unload(module);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(out: Out<'_, Handle>, module: Handle, name: *const c_char) -> u32 {
    call("cuModuleGetFunction", Needs::Context, |call| {
        let name = text(name).ok_or(INVALID_VALUE)?;
        let Some(Module { device, entries }) = call.modules.get(&module) else {
            return Err(call.bad_handle("module", module, "cuModuleGetFunction"));
        };
        let device = *device;
        let runs = match entries {
            None => call.kernel(&name).map(Runs::Registered),
            Some(entries) => entries.iter().find(|entry| entry.name == name).cloned().map(Runs::Ptx),
        };
        let runs = runs.ok_or(NOT_FOUND)?;
        let function = call.handle(Kind::Function);
        call.functions.insert(function, Function { runs, module, device });
        put(out, function)
    })
}

/// Arguments are passed by `parameters`; the other form, one packed buffer, is refused.
#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    _shared_bytes: u32,
    stream: Handle,
    parameters: *const *const u8,
    extra: *const c_void,
) -> u32 {
    call("cuLaunchKernel", Needs::Context, |call| {
        let dims = [grid_x, grid_y, grid_z, block_x, block_y, block_z];
        let threads = u64::from(block_x) * u64::from(block_y) * u64::from(block_z);
        // The limits of every GPU, whatever its age.
        let is_too_large =
            threads > 1024 || block_z > 64 || grid_x > 0x7fff_ffff || grid_y > 65_535 || grid_z > 65_535;
        if dims.contains(&0) || is_too_large || !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        launch(call, function, dims, stream, parameters)
    })
}

fn launch(
    call: &mut Call,
    function: Handle,
    dims: [u32; 6],
    stream: Handle,
    parameters: *const *const u8,
) -> Answer {
    let Some(function) = call.functions.get(&function).cloned() else {
        return Err(call.bad_handle("function", function, "cuLaunchKernel"));
    };
    let stream = call.working_stream(stream)?;
    let device = call.device;
    // Unlike a copy, a launch must be of the current context, stream and function both.
    if call.streams[&stream].device != device || function.device != device {
        return Err(INVALID_HANDLE);
    }
    match function.runs {
        Runs::Registered(kernel) => launch_registered(call, kernel, dims, stream, parameters),
        Runs::Ptx(entry) => launch_ptx(call, entry, dims, stream, parameters),
    }
}

fn launch_registered(
    call: &mut Call,
    kernel: Kernel,
    dims: [u32; 6],
    stream: Handle,
    parameters: *const *const u8,
) -> Answer {
    let Kernel { body, parameters: kinds } = kernel;
    if parameters.is_null() && !kinds.is_empty() {
        return Err(INVALID_VALUE);
    }
    let size = |kind: &Parameter| match kind {
        Parameter::Value(size) => *size,
        Parameter::Buffer { .. } => size_of::<u64>(),
    };
    let arguments = arguments(parameters, &kinds.iter().map(size).collect::<Vec<_>>());
    let (mut uses, mut keep) = (Vec::new(), Vec::new());
    let device = call.device;
    for (kind, argument) in kinds.iter().zip(&arguments) {
        let Parameter::Buffer { writes } = *kind else { continue };
        let (start, range) = call.find_on(device, address(argument), 1, "cuLaunchKernel")?;
        let buffer = &call.buffers[&start];
        // How far it writes is unknown: assume to the end.
        uses.push(Use { buffer: start, range: range.start..buffer.len, writes });
        keep.push(Arc::clone(&buffer.storage));
    }
    call.submit(stream, "cuLaunchKernel", &uses, 0, Work::Kernel { body, arguments, dims, _keep: keep });
    Ok(())
}

/// As on a GPU, no argument is wrong at the launch: one that leads nowhere is found by the thread that
/// follows it.
fn launch_ptx(
    call: &mut Call,
    entry: Arc<Entry>,
    dims: [u32; 6],
    stream: Handle,
    parameters: *const *const u8,
) -> Answer {
    if parameters.is_null() && !entry.parameters.is_empty() {
        return Err(INVALID_VALUE);
    }
    let sizes: Vec<usize> = entry.parameters.iter().map(|parameter| parameter.bytes).collect();
    let arguments = arguments(parameters, &sizes);
    let (mut uses, mut regions) = (Vec::new(), Vec::new());
    for (parameter, argument) in entry.parameters.iter().zip(&arguments) {
        if !parameter.is_read && !parameter.is_written {
            continue;
        }
        let first = address(argument);
        let Ok(Found::Inside { start, range }) = call.find(first, 1, "cuLaunchKernel") else { continue };
        let buffer = &call.buffers[&start];
        if buffer.owner != Owner::Device || buffer.device != call.device {
            continue;
        }
        // How far it goes is known only when it runs: assume to the end.
        let range = range.start..buffer.len;
        let (offset, bytes, is_written) = (range.start, range.len(), parameter.is_written);
        regions.push(Region { first, bytes, is_written, storage: Arc::clone(&buffer.storage), offset });
        uses.push(Use { buffer: start, range, writes: is_written });
    }
    let launch = Launch::new(entry, &arguments, dims, regions);
    call.submit(stream, "cuLaunchKernel", &uses, 0, Work::Ptx(launch));
    Ok(())
}

fn address(argument: &[u8]) -> u64 {
    u64::from_le_bytes(argument.try_into().expect("8 bytes were copied"))
}
