//! Recursive work on a pool of threads: how the commands walk a tree.
//!
//! A job (a directory, or a part of a large one) emits outputs and spawns jobs. The sink gets the
//! outputs in one of two orders:
//!
//! - [`Order::AsReady`]: as they come, one at a time, on the thread of the job. A slow sink blocks
//!   the workers, and no output wakes a thread. The queue is last in, first out, so its length is
//!   about depth times width.
//! - [`Order::Stable`]: depth first, as one thread would emit them. The caller's thread consumes
//!   the outputs and runs a job itself that no worker has begun; workers run ahead by at most
//!   [`AHEAD`] finished jobs. So a slow sink blocks the workers, and no thread waits for a job that
//!   cannot start.
//!
//! Locks: one for the queue, one per job slot; neither is held while a job or the sink runs. For
//! `AsReady` one for the sink, outside that of the queue.

use crate::host;
use crate::interrupt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use dentree_sync::{Condvar, Mutex};

/// The order in which the sink gets outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    AsReady,
    /// At the place of their job, depth first.
    Stable,
}

/// Finished jobs that may wait for the sink in [`Order::Stable`].
const AHEAD: usize = 256;

/// Collects outputs and jobs of a job.
pub(crate) struct Emit<'a, J, O> {
    pieces: Vec<Piece<J, O>>,
    direct: Option<&'a (dyn Fn(O) + Sync)>,
}

impl<J, O> Emit<'_, J, O> {
    pub(crate) fn put(&mut self, output: O) {
        match self.direct {
            Some(direct) => direct(output),
            None => self.pieces.push(Piece::Output(output)),
        }
    }

    /// Spawns a job, with its outputs at this place.
    pub(crate) fn spawn(&mut self, job: J) {
        self.pieces.push(Piece::Job(Arc::new(Slot::new(job))));
    }
}

/// Runs `roots` and all jobs that they spawn on `threads` threads; stops early when the sink
/// breaks, or after Ctrl-C where that is caught. [`Order::Stable`] may have no thread but the
/// caller's: jobs then run one after the other, each when its outputs are due.
pub(crate) fn run<J: Send, O: Send>(
    threads: usize,
    order: Order,
    roots: Vec<J>,
    work: impl Fn(J, &mut Emit<'_, J, O>) + Sync,
    mut sink: impl FnMut(O) -> ControlFlow<()> + Send,
) {
    let work = |job, emit: &mut Emit<'_, J, O>| {
        if !interrupt::has_come() {
            work(job, emit);
        }
    };
    let sink = |output| if interrupt::has_come() { ControlFlow::Break(()) } else { sink(output) };
    match order {
        Order::AsReady => run_as_ready(threads, roots, &work, sink),
        Order::Stable => run_stable(threads, roots, &work, sink),
    }
}

/// How work that reads contents is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Width {
    pub(crate) threads: usize,
    /// Most files that a job reads one after another.
    files: usize,
}

impl Width {
    /// For an image behind a network: a thread that waits for an answer needs no processor.
    pub(crate) const REMOTE: Width = Width { threads: 32, files: 4 };

    /// For an image of this machine.
    pub(crate) fn local() -> Width {
        Width { threads: threads(), files: 512 }
    }

    /// For two images that are read together.
    pub(crate) fn of_both(self, other: Width) -> Width {
        if self.files < other.files { self } else { other }
    }

    /// Ranges for one job each, which cover `0..len`.
    pub(crate) fn parts(self, len: usize) -> impl Iterator<Item = Range<usize>> {
        (0..len).step_by(self.files).map(move |start| start..len.min(start + self.files))
    }
}

/// The number of processors.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the limit of open files to its maximum: a running job may hold a local directory open,
/// and so may each of its ancestors. With a low limit very deep trees fail with a message.
pub(crate) fn raise_file_limit() {
    host::raise_file_limit();
}

enum Piece<J, O> {
    Output(O),
    Job(Arc<Slot<J, O>>),
}

struct Slot<J, O> {
    state: Mutex<State<J, O>>,
    done: Condvar,
}

enum State<J, O> {
    Queued(J),
    Running,
    /// Running, and the sink waits for it.
    Awaited,
    Done(Vec<Piece<J, O>>),
}

impl<J, O> Slot<J, O> {
    fn new(job: J) -> Self {
        Slot { state: Mutex::new(State::Queued(job)), done: Condvar::new() }
    }

    /// Takes the job, unless it has begun.
    fn begin(&self) -> Option<J> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Running) {
            State::Queued(job) => Some(job),
            other => {
                *state = other;
                None
            }
        }
    }

    fn finish(&self, pieces: Vec<Piece<J, O>>) {
        // A notify without a waiter would be a system call, too.
        if let State::Awaited = std::mem::replace(&mut *self.state.lock(), State::Done(pieces)) {
            self.done.notify_one();
        }
    }

    /// Waits for the pieces of a job that has begun. Only the sink calls it.
    fn take(&self) -> Vec<Piece<J, O>> {
        let mut state = self.state.lock();
        loop {
            if let State::Done(pieces) = &mut *state {
                return std::mem::take(pieces);
            }
            *state = State::Awaited;
            state = self.done.wait(state);
        }
    }
}

/// Slots that wait for a worker.
struct Queue<J, O> {
    inner: Mutex<QueueState<J, O>>,
    changed: Condvar,
}

struct QueueState<J, O> {
    stack: Vec<Arc<Slot<J, O>>>,
    /// Jobs queued or running; 0 ends the workers.
    open: usize,
    /// Finished jobs that the sink has not consumed.
    ahead: usize,
    /// Workers that wait for a job.
    idle: usize,
    stopped: bool,
}

impl<J, O> Queue<J, O> {
    fn new() -> Self {
        let state = QueueState { stack: Vec::new(), open: 0, ahead: 0, idle: 0, stopped: false };
        Queue { inner: Mutex::new(state), changed: Condvar::new() }
    }

    /// Queues the jobs among `pieces`; the first is popped first.
    fn push<'a>(&self, pieces: impl DoubleEndedIterator<Item = &'a Piece<J, O>>)
    where
        J: 'a,
        O: 'a,
    {
        let mut state = self.inner.lock();
        let before = state.stack.len();
        state.stack.extend(pieces.rev().filter_map(|piece| match piece {
            Piece::Job(slot) => Some(slot.clone()),
            Piece::Output(_) => None,
        }));
        let added = state.stack.len() - before;
        state.open += added;
        let needed = added.min(state.idle);
        drop(state);
        match needed {
            0 => {}
            1 => self.changed.notify_one(),
            _ => self.changed.notify_all(),
        }
    }

    /// Waits for the next slot; `None` when all work is done.
    fn pop(&self) -> Option<Arc<Slot<J, O>>> {
        let mut state = self.inner.lock();
        loop {
            if state.stopped || state.open == 0 {
                return None;
            }
            if state.ahead < AHEAD
                && let Some(slot) = state.stack.pop()
            {
                return Some(slot);
            }
            state.idle += 1;
            state = self.changed.wait(state);
            state.idle -= 1;
        }
    }

    /// Finishes a popped slot; with `waits` its pieces wait for the sink.
    fn close(&self, waits: bool) {
        let mut state = self.inner.lock();
        state.open -= 1;
        state.ahead += usize::from(waits);
        if state.open == 0 {
            self.changed.notify_all();
        }
    }

    /// The sink has consumed a finished job.
    fn consumed(&self) {
        let mut state = self.inner.lock();
        state.ahead -= 1;
        if state.ahead == AHEAD - 1 {
            self.changed.notify_all();
        }
    }

    fn stop(&self) {
        self.inner.lock().stopped = true;
        self.changed.notify_all();
    }
}

/// Stops the workers when the sink's thread leaves, also by a panic.
struct StopAtEnd<'a, J, O>(&'a Queue<J, O>);

impl<J, O> Drop for StopAtEnd<'_, J, O> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Publishes a job's pieces on drop, none after a panic: the sink never waits for ever.
struct Finish<'a, J, O> {
    queue: &'a Queue<J, O>,
    slot: &'a Slot<J, O>,
    pieces: Vec<Piece<J, O>>,
}

impl<J, O> Drop for Finish<'_, J, O> {
    fn drop(&mut self) {
        // Counted before it can be consumed: `ahead` never falls below zero.
        self.queue.close(true);
        self.slot.finish(std::mem::take(&mut self.pieces));
    }
}

fn run_as_ready<J: Send, O: Send>(
    threads: usize,
    roots: Vec<J>,
    work: &(impl Fn(J, &mut Emit<'_, J, O>) + Sync),
    sink: impl FnMut(O) -> ControlFlow<()> + Send,
) {
    let queue = Queue::new();
    queue.push(as_pieces(roots).iter());
    // `None` once it broke: later outputs are dropped.
    let sink = Mutex::new(Some(sink));
    let direct = |output| {
        let mut sink = sink.lock();
        if sink.as_mut().is_some_and(|sink| sink(output).is_break()) {
            *sink = None;
            queue.stop();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let _stop = StopAtEnd(&queue);
                while let Some(slot) = queue.pop() {
                    if let Some(job) = slot.begin() {
                        let mut emit = Emit { pieces: Vec::new(), direct: Some(&direct) };
                        work(job, &mut emit);
                        queue.push(emit.pieces.iter());
                    }
                    queue.close(false);
                }
            });
        }
    });
}

fn run_stable<J: Send, O: Send>(
    threads: usize,
    roots: Vec<J>,
    work: &(impl Fn(J, &mut Emit<'_, J, O>) + Sync),
    mut sink: impl FnMut(O) -> ControlFlow<()>,
) {
    let queue = Queue::new();
    let roots = as_pieces(roots);
    let has_workers = threads > 0;
    if has_workers {
        queue.push(roots.iter());
    }
    let perform = |job| {
        let mut emit = Emit { pieces: Vec::new(), direct: None };
        work(job, &mut emit);
        if has_workers {
            queue.push(emit.pieces.iter());
        }
        emit.pieces
    };
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&queue);
        for _ in 0..threads {
            scope.spawn(|| {
                let _stop = StopAtEnd(&queue);
                while let Some(slot) = queue.pop() {
                    match slot.begin() {
                        Some(job) => {
                            let mut finish = Finish { queue: &queue, slot: &slot, pieces: Vec::new() };
                            finish.pieces = perform(job);
                        }
                        None => queue.close(false),
                    }
                }
            });
        }
        let mut stack = vec![roots.into_iter()];
        while let Some(pieces) = stack.last_mut() {
            match pieces.next() {
                None => drop(stack.pop()),
                Some(Piece::Output(output)) => {
                    if sink(output).is_break() {
                        return;
                    }
                }
                Some(Piece::Job(slot)) => stack.push(match slot.begin() {
                    Some(job) => perform(job).into_iter(),
                    None => {
                        let pieces = slot.take();
                        queue.consumed();
                        pieces.into_iter()
                    }
                }),
            }
        }
    });
}

fn as_pieces<J, O>(jobs: Vec<J>) -> Vec<Piece<J, O>> {
    jobs.into_iter().map(|job| Piece::Job(Arc::new(Slot::new(job)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_directory() {
        assert_eq!(Width::local().parts(1000).collect::<Vec<_>>(), [0..512, 512..1000]);
        assert_eq!(Width::REMOTE.parts(6).collect::<Vec<_>>(), [0..4, 4..6]);
    }

    /// Jobs are (number, depth): each emits its number, spawns two children, and emits it again.
    fn numbers(order: Order, limit: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        let work = |(n, depth): (u32, u32), emit: &mut Emit<'_, _, _>| {
            emit.put(n);
            if depth > 0 {
                emit.spawn((2 * n, depth - 1));
                emit.spawn((2 * n + 1, depth - 1));
            }
            emit.put(n);
        };
        run(4, order, vec![(1, 11)], work, |n| {
            seen.push(n);
            if seen.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        seen
    }

    fn depth_first(n: u32, depth: u32, seen: &mut Vec<u32>) {
        seen.push(n);
        if depth > 0 {
            depth_first(2 * n, depth - 1, seen);
            depth_first(2 * n + 1, depth - 1, seen);
        }
        seen.push(n);
    }

    #[test]
    fn stable_order_is_what_one_thread_would_give() {
        let mut expected = Vec::new();
        depth_first(1, 11, &mut expected);
        for _ in 0..20 {
            assert_eq!(numbers(Order::Stable, usize::MAX), expected);
        }
    }

    #[test]
    fn ready_order_gives_every_output_once() {
        let mut expected = Vec::new();
        depth_first(1, 11, &mut expected);
        expected.sort_unstable();
        for _ in 0..20 {
            let mut seen = numbers(Order::AsReady, usize::MAX);
            seen.sort_unstable();
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn a_sink_that_breaks_ends_the_work() {
        for order in [Order::Stable, Order::AsReady] {
            for limit in [1, 100, 5000] {
                assert_eq!(numbers(order, limit).len(), limit);
            }
        }
    }
}
