//! Work that begets work, done by several threads: how every command goes through a tree.
//!
//! A job (a directory, or a part of a big one) puts outputs and spawns further jobs. Outputs reach the sink in one of
//! two orders:
//!
//! - [`Order::AsReady`]: as they come, one at a time, on the thread of the job: a slow sink holds the workers back, and nobody is woken
//!   for an output. The queue is last in, first out, so that it stays about as long as the tree is deep times a directory's width.
//! - [`Order::Stable`]: where the job put or spawned them, as if one thread had done all depth first. The caller's
//!   thread goes through the outputs in that order and does a job itself when it comes to one that nobody has
//!   begun; workers run ahead by at most [`AHEAD`] finished jobs. So a slow sink holds workers back, and nobody
//!   ever waits for a job that cannot start.
//!
//! Locks: one for the queue, one per job slot; neither is held while a job or the sink runs. One for the sink, where it runs on the workers'
//! threads; that of the queue is taken inside, when the sink breaks.

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// In which order outputs reach the sink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// As they come.
    AsReady,
    /// Where the job put them, depth first.
    Stable,
}

/// Finished jobs that may wait for the sink in [`Order::Stable`].
const AHEAD: usize = 256;

/// What a job gives: outputs and further jobs.
pub(crate) struct Emit<'a, J, O> {
    pieces: Vec<Piece<J, O>>,
    /// Takes outputs as they come.
    direct: Option<&'a (dyn Fn(O) + Sync)>,
}

impl<J, O> Emit<'_, J, O> {
    /// Sends an output to the sink.
    pub(crate) fn put(&mut self, output: O) {
        match self.direct {
            Some(direct) => direct(output),
            None => self.pieces.push(Piece::Output(output)),
        }
    }

    /// Adds a job, whose outputs stand here.
    pub(crate) fn spawn(&mut self, job: J) {
        self.pieces.push(Piece::Job(Arc::new(Slot::new(job))));
    }
}

/// Does `roots` and all that they beget with `threads` threads; stops early when the sink breaks.
pub(crate) fn run<J: Send, O: Send>(
    threads: usize,
    order: Order,
    roots: Vec<J>,
    work: impl Fn(J, &mut Emit<'_, J, O>) + Sync,
    sink: impl FnMut(O) -> ControlFlow<()> + Send,
) {
    match order {
        Order::AsReady => run_as_ready(threads, roots, &work, sink),
        Order::Stable => run_stable(threads, roots, &work, sink),
    }
}

/// As many threads as the machine runs at once.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Lets the program have as many files open as it may: a job that is under way may hold a directory of this machine open,
/// and so may each of its ancestors.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it stays low, very deep trees fail with a message.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

enum Piece<J, O> {
    Output(O),
    Job(Arc<Slot<J, O>>),
}

/// A job and what became of it.
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

    /// The job, if nobody has begun it.
    fn begin(&self) -> Option<J> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Running) {
            State::Queued(job) => Some(job),
            other => {
                *state = other;
                None
            }
        }
    }

    fn finish(&self, pieces: Vec<Piece<J, O>>) {
        // To wake nobody is a system call, too.
        if let State::Awaited = std::mem::replace(&mut *lock(&self.state), State::Done(pieces)) {
            self.done.notify_one();
        }
    }

    /// Waits for what the job gave, which somebody has begun: for the one sink that there is.
    fn take(&self) -> Vec<Piece<J, O>> {
        let mut state = lock(&self.state);
        loop {
            if let State::Done(pieces) = &mut *state {
                return std::mem::take(pieces);
            }
            *state = State::Awaited;
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
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
    /// Jobs queued or running: none left means that the work is done.
    open: usize,
    /// Finished jobs that the sink has not come to.
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

    /// Adds the jobs among `pieces`, the first to be taken first.
    fn push<'a>(&self, pieces: impl DoubleEndedIterator<Item = &'a Piece<J, O>>)
    where
        J: 'a,
        O: 'a,
    {
        let mut state = lock(&self.inner);
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

    /// The next slot; waits while there may be one later; `None` when the work is done.
    fn pop(&self) -> Option<Arc<Slot<J, O>>> {
        let mut state = lock(&self.inner);
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
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// A popped slot is dealt with; `waits` where its pieces now wait for the sink.
    fn close(&self, waits: bool) {
        let mut state = lock(&self.inner);
        state.open -= 1;
        state.ahead += usize::from(waits);
        if state.open == 0 {
            self.changed.notify_all();
        }
    }

    /// The sink took a finished job's pieces.
    fn consumed(&self) {
        let mut state = lock(&self.inner);
        state.ahead -= 1;
        if state.ahead == AHEAD - 1 {
            self.changed.notify_all();
        }
    }

    fn stop(&self) {
        lock(&self.inner).stopped = true;
        self.changed.notify_all();
    }
}

/// Ends the workers when the sink's thread leaves, by a panic too.
struct StopAtEnd<'a, J, O>(&'a Queue<J, O>);

impl<J, O> Drop for StopAtEnd<'_, J, O> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Hands a job's pieces to the sink at the end, none of them after a panic: the sink never waits in vain.
struct Finish<'a, J, O> {
    queue: &'a Queue<J, O>,
    slot: &'a Slot<J, O>,
    pieces: Vec<Piece<J, O>>,
}

impl<J, O> Drop for Finish<'_, J, O> {
    fn drop(&mut self) {
        // Counted before it can be taken, so that `ahead` never falls below zero.
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
    // None once it broke: what comes after nobody misses.
    let sink = Mutex::new(Some(sink));
    let direct = |output| {
        let mut sink = lock(&sink);
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
    queue.push(roots.iter());
    let perform = |job| {
        let mut emit = Emit { pieces: Vec::new(), direct: None };
        work(job, &mut emit);
        queue.push(emit.pieces.iter());
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs are (number, depth): each puts its number, then spawns two children, then puts it again.
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
