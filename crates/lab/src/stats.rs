//! Figures from repeated runs: what is printed, and how sure of it one may be.
//!
//! Runs on a shared machine have a long upper tail, so the middle is the median and the spread is the smallest and the
//! largest run. With n independent runs these two enclose the true median with probability 1 − 2^(1−n): 98% for 7 runs.
//! Two variants are compared by the ratio of *paired* runs (same work, back to back), so that what slows the machine for
//! a second slows both sides; the interval of that ratio comes from a bootstrap with a fixed seed.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

/// Repeated measurements of one figure, in one unit. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// Takes the runs in any order; `None` when there are none or one is not a number.
    pub fn new(mut runs: Vec<f64>) -> Option<Self> {
        if runs.is_empty() || runs.iter().any(|x| x.is_nan()) {
            return None;
        }
        runs.sort_by(f64::total_cmp);
        Some(Self { sorted: runs })
    }

    /// The middle run, or the mean of the two middle ones.
    pub fn median(&self) -> f64 {
        median_of_sorted(&self.sorted)
    }

    /// The smallest run.
    pub fn low(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest run.
    pub fn high(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// How many runs there are.
    pub fn n(&self) -> usize {
        self.sorted.len()
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// The unbiased variance (n − 1 below the line); zero for a single run.
    pub fn variance(&self) -> f64 {
        if self.sorted.len() < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|x| (x - mean) * (x - mean)).sum();
        squares / (self.sorted.len() - 1) as f64
    }

    /// The standard deviation: the root of [`variance`](Self::variance).
    pub fn std_dev(&self) -> f64 {
        self.variance().sqrt()
    }
}

/// A ratio with a 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the paired ratios.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Pairs that went in.
    pub n: usize,
}

/// The ratio `ours[i] / theirs[i]` over paired runs: its median, and the 2.5% and 97.5% points of the medians of 2000
/// bootstrap resamples. `None` when the two differ in length, are empty, or a divisor is not positive.
///
/// ```
/// let ratio = dentree_lab::stats::paired_ratio(&[10.0, 21.0, 30.0], &[20.0, 40.0, 60.0]).unwrap();
/// assert_eq!(ratio.median, 0.5);
/// assert!(ratio.low >= 0.5 && ratio.high <= 0.525);
/// ```
pub fn paired_ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    if ours.len() != theirs.len() || theirs.iter().any(|&x| x.is_nan() || x <= 0.0) {
        return None;
    }
    let pairs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    let median = Sample::new(pairs.clone())?.median();
    let medians = Sample::new(bootstrap_medians(&pairs, 2000))?.sorted;
    let at = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
    Some(Ratio { median, low: at(0.025), high: at(0.975), n: pairs.len() })
}

fn bootstrap_medians(values: &[f64], resamples: usize) -> Vec<f64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x0b00_7574);
    let mut draw = vec![0.0; values.len()];
    (0..resamples)
        .map(|_| {
            draw.fill_with(|| values[rng.random_range(0..values.len())]);
            draw.sort_by(f64::total_cmp);
            median_of_sorted(&draw)
        })
        .collect()
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_of_known_runs_has_the_textbook_figures() {
        let sample = Sample::new(vec![4.0, 2.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((sample.low(), sample.median(), sample.high(), sample.n()), (2.0, 4.5, 9.0, 8));
        assert_eq!(sample.mean(), 5.0);
        assert!((sample.variance() - 32.0 / 7.0).abs() < 1e-12);
        assert!((sample.std_dev() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn no_runs_and_not_a_number_are_refused() {
        assert_eq!(Sample::new(vec![]), None);
        assert_eq!(Sample::new(vec![1.0, f64::NAN]), None);
        assert_eq!(paired_ratio(&[1.0], &[0.0]), None);
        assert_eq!(paired_ratio(&[1.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn a_slow_second_of_the_machine_does_not_move_a_paired_ratio() {
        let theirs = [100.0, 100.0, 900.0, 100.0, 100.0];
        let ours = [50.0, 50.0, 450.0, 50.0, 50.0];
        let ratio = paired_ratio(&ours, &theirs).unwrap();
        assert_eq!((ratio.low, ratio.median, ratio.high), (0.5, 0.5, 0.5));
    }

    #[test]
    fn the_interval_encloses_the_median_and_repeats_exactly() {
        let ours = [1.0, 1.2, 0.9, 1.1, 1.3, 0.8, 1.0];
        let theirs = [2.0; 7];
        let ratio = paired_ratio(&ours, &theirs).unwrap();
        assert!(ratio.low <= ratio.median && ratio.median <= ratio.high);
        assert_eq!(Some(ratio), paired_ratio(&ours, &theirs));
    }
}
