//! The thread of a stream: carries out its operations in order.

use std::ffi::c_void;
use std::sync::{Arc, Condvar};

use crate::abi::Handle;
use crate::streams::{Operation, Work};
use crate::world::{DONE, Guard, World, lock, wait};

pub(crate) fn start(name: String, stream: Handle, changed: Arc<Condvar>) {
    std::thread::Builder::new()
        .name(name)
        .spawn(move || run(stream, &changed))
        .expect("a test makes few enough threads");
}

fn run(stream: Handle, changed: &Condvar) {
    let mut world = lock();
    loop {
        match next(&mut world, stream) {
            Next::Operation(operation) => {
                world = carry_out(world, stream, &operation);
                end(&mut world, stream, &operation);
                DONE.notify_all();
            }
            Next::Nothing => world = wait(changed, world),
            Next::End => break,
        }
    }
    world.streams.remove(&stream);
    world.workers -= 1;
    DONE.notify_all();
}

enum Next {
    Operation(Operation),
    Nothing,
    End,
}

fn next(world: &mut World, id: Handle) -> Next {
    let Some(stream) = world.streams.get_mut(&id).filter(|stream| !stream.abandoned) else {
        return Next::End;
    };
    if stream.queue.is_empty() {
        return if stream.destroyed { Next::End } else { Next::Nothing };
    }
    if let Some(may_go) = world.held.get_mut(&(stream.device, stream.place)) {
        let Some(left) = may_go.checked_sub(1) else { return Next::Nothing };
        *may_go = left;
    }
    stream.queue.pop_front().map_or(Next::Nothing, Next::Operation)
}

/// Carries out the operation, unless its device is broken. Releases the lock while it takes its time.
fn carry_out(mut world: Guard, stream: Handle, operation: &Operation) -> Guard {
    let device = world.streams[&stream].device;
    match &operation.work {
        Work::Mark | Work::Record { .. } => return world,
        Work::Wait { stream: other, seq } => {
            let goes_on = |world: &World| {
                world.has_ended(*other, *seq)
                    || world.broken(device).is_some()
                    || world.streams[&stream].abandoned
            };
            while !goes_on(&world) {
                world = wait(&DONE, world);
            }
            return world;
        }
        _ => {}
    }
    let delay = world.config.delay(operation.bytes);
    if !delay.is_zero() && world.broken(device).is_none() {
        drop(world);
        std::thread::sleep(delay);
        world = lock();
    }
    if world.broken(device).is_some() {
        return world;
    }
    if let Some(code) = world.faults.at_operation(operation.symbol, device) {
        world.devices[device].sticky = Some(code);
        return world;
    }
    perform(world, stream, operation)
}

fn perform(mut world: Guard, stream: Handle, operation: &Operation) -> Guard {
    match &operation.work {
        Work::Copy { from, to, checksum } => {
            // The lock stays held if the caller could take memory back meanwhile, and cause a crash.
            let kept = (!from.storage.is_ours() || !to.storage.is_ours()).then_some(world);
            let changed =
                checksum.is_some_and(|sum| sum != from.storage.checksum(from.offset, operation.bytes));
            from.storage.copy_to(from.offset, &to.storage, to.offset, operation.bytes);
            let mut world = kept.unwrap_or_else(lock);
            if changed {
                let words = format!(
                    "changed in flight: the {} bytes at {:#x} that {} on {} was to copy",
                    operation.bytes,
                    from.storage.start() + from.offset,
                    operation.symbol,
                    world.streams[&stream].name(),
                );
                world.ledger.violation(words);
            }
            world
        }
        Work::Fill { to, value } => {
            to.storage.fill(to.offset, *value, operation.bytes);
            world
        }
        Work::Host { function, data, clock } => {
            // Once it runs, the host knows that everything before it has ended.
            world.host.merge(clock);
            drop(world);
            function(*data);
            lock()
        }
        Work::Kernel { body, arguments, dims, .. } => {
            drop(world);
            let pointers: Vec<*const c_void> =
                arguments.iter().map(|argument| argument.as_ptr().cast()).collect();
            // SAFETY: whoever registered the kernel promised that it takes arguments of its signature. They
            // are all here, each as long as the signature says.
            unsafe { body(pointers.as_ptr(), dims.as_ptr()) };
            lock()
        }
        Work::Ptx(launch) => {
            drop(world);
            let ended = launch.run();
            let mut world = lock();
            if let Err(failure) = ended {
                let words = format!("{}, on {}", failure.words, world.streams[&stream].name());
                world.ledger.violation(words);
                let device = world.streams[&stream].device;
                world.devices[device].sticky.get_or_insert(failure.code);
            }
            world
        }
        Work::Mark | Work::Record { .. } | Work::Wait { .. } => world,
    }
}

fn end(world: &mut World, stream: Handle, operation: &Operation) {
    world.progress.insert(stream, operation.seq);
    if let Work::Record { event } = operation.work {
        world.event_happened(event, stream, operation.seq);
    }
}
