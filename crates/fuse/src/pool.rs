//! Threads for requests that wait: as many as wait at a time, kept for the next.

use dentree_sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Runs each job at once on a thread of its own.
///
/// `jobs` never has more jobs than there are idle threads, so no job waits for another one: a job
/// may wait for what only another job does.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<State>,
    /// Notified for each job, and at the end.
    has_work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job, less the jobs that wait for them.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    has_ended: bool,
}

impl Pool {
    /// Runs `job` on another thread, or here where no thread can be had.
    pub(crate) fn run(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle > 0 {
            state.idle -= 1;
            drop(state);
            self.has_work.notify_one();
            return;
        }
        let pool = self.clone();
        match thread::Builder::new().name("fuse-wait".into()).spawn(move || pool.work()) {
            Ok(thread) => state.threads.push(thread),
            Err(_) => {
                let job = state.jobs.pop_back();
                drop(state);
                job.into_iter().for_each(|job| job());
            }
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.state.lock();
            let job = loop {
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None if state.has_ended => return,
                    None => state = self.has_work.wait(state),
                }
            };
            drop(state);
            job();
            self.state.lock().idle += 1;
        }
    }

    /// Waits for all jobs, and ends the threads.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.has_work.notify_all();
        for thread in threads {
            // A job that panics has told of it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_job_may_wait_for_a_later_one_and_threads_are_kept() {
        let pool = Arc::new(Pool::default());
        for _ in 0..3 {
            let (first, second) = (channel(), channel());
            pool.run(Box::new(move || second.1.recv().map(|()| first.0.send(()).unwrap()).unwrap()));
            pool.run(Box::new(move || second.0.send(()).unwrap()));
            first.1.recv().unwrap();
        }
        assert!(pool.state.lock().threads.len() <= 6);
        pool.end();
        assert!(pool.state.lock().threads.is_empty());
    }
}
