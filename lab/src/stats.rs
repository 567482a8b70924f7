//! Figures from repeated runs, and their confidence.
//!
//! Runs on a shared machine have a long upper tail, so a figure is the median with the minimum and
//! the maximum. With n independent runs these two enclose the true median with probability 1 −
//! 2^(1−n): 98% for 7 runs.
//!
//! Two variants are compared by the ratio of *paired* runs (same work, back to back), so that a
//! slow second of the machine affects both. The remaining scatter is assumed to be log-normal: the
//! middle is the geometric mean, and the interval Student's, which is wide for few runs. (Bootstrap
//! intervals of seven runs enclosed the truth seven times in eight.) An interval covers the
//! differences between its runs and nothing else: the difference between processes is only in it if
//! each run is a process of its own ([`passes`](crate::passes)).

/// Repeated measurements of one figure, in one unit. Never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    sorted: Vec<f64>,
}

impl Sample {
    /// Takes the runs in any order; `None` if there are none or one is not a number.
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

    /// The minimum.
    pub fn low(&self) -> f64 {
        self.sorted[0]
    }

    /// The maximum.
    pub fn high(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The number of runs.
    pub fn n(&self) -> usize {
        self.sorted.len()
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len() as f64
    }

    /// The unbiased variance (divisor n − 1); zero for a single run.
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
    /// The geometric mean of the paired ratios.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The number of pairs.
    pub n: usize,
}

/// The ratio `ours[i] / theirs[i]` over paired runs: the mean of its logarithms, and Student's 95%
/// interval of that mean. `None` if the two differ in length, are fewer than two, or one of them is
/// not positive.
///
/// ```
/// let ratio = dentree_lab::stats::paired_ratio(&[10.0, 21.0, 30.0], &[20.0, 40.0, 60.0]).unwrap();
/// assert!((0.5..0.525).contains(&ratio.mean));
/// assert!(ratio.low < 0.5 && ratio.high > 0.525, "three runs say little");
/// ```
pub fn paired_ratio(ours: &[f64], theirs: &[f64]) -> Option<Ratio> {
    let is_positive = |runs: &[f64]| runs.iter().all(|run| run.is_finite() && *run > 0.0);
    if ours.len() != theirs.len() || ours.len() < 2 || !is_positive(ours) || !is_positive(theirs) {
        return None;
    }
    let logs = Sample::new(ours.iter().zip(theirs).map(|(a, b)| (a / b).ln()).collect())?;
    let n = logs.n();
    let half = student_95(n as f64 - 1.0) * logs.std_dev() / (n as f64).sqrt();
    let mean = logs.mean();
    Some(Ratio { mean: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp(), n })
}

/// Whether two ratios, measured separately, differ by more than chance: 0 is outside the 95%
/// interval of the difference of their logarithms (Welch's test). Of equal ratios, one in twenty
/// differs.
pub fn differ(one: &Ratio, other: &Ratio) -> bool {
    let (a, b) = (standard_error(one), standard_error(other));
    let (square_a, square_b) = (a * a, b * b);
    let freedom = |ratio: &Ratio| (ratio.n as f64 - 1.0).max(1.0);
    let parts = square_a * square_a / freedom(one) + square_b * square_b / freedom(other);
    let both = square_a + square_b;
    let degrees = if parts > 0.0 { both * both / parts } else { f64::INFINITY };
    (one.mean.ln() - other.mean.ln()).abs() > student_95(degrees) * both.sqrt()
}

/// The standard error of the mean of the logarithms, from its interval.
fn standard_error(ratio: &Ratio) -> f64 {
    (ratio.high.ln() - ratio.low.ln()) / (2.0 * student_95((ratio.n as f64 - 1.0).max(1.0)))
}

/// Half the width of a 95% interval in standard errors: the 97.5% point of Student's distribution
/// with `degrees` degrees of freedom, at least one, to four digits; interpolated between integers.
fn student_95(degrees: f64) -> f64 {
    const FIRST: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let degrees = degrees.max(1.0);
    if degrees >= FIRST.len() as f64 {
        // The Cornish-Fisher expansion around the normal distribution's 97.5% point.
        let z: f64 = 1.959_964;
        let terms = [
            (z.powi(3) + z) / 4.0,
            (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
            (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        ];
        return z + terms[0] / degrees + terms[1] / degrees.powi(2) + terms[2] / degrees.powi(3);
    }
    let below = degrees.floor();
    let at = below as usize - 1;
    FIRST[at] + (degrees - below) * (FIRST[at + 1] - FIRST[at])
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand_distr::{Distribution, Normal};

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
        assert_eq!(paired_ratio(&[1.0, 1.0], &[1.0, 0.0]), None);
        assert_eq!(paired_ratio(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(paired_ratio(&[1.0], &[1.0]), None, "one pair has no interval");
    }

    #[test]
    fn a_slow_second_of_the_machine_does_not_move_a_paired_ratio() {
        let theirs = [100.0, 100.0, 900.0, 100.0, 100.0];
        let ours = [50.0, 50.0, 450.0, 50.0, 50.0];
        let ratio = paired_ratio(&ours, &theirs).unwrap();
        for end in [ratio.low, ratio.mean, ratio.high] {
            assert!((end - 0.5).abs() < 1e-12);
        }
    }

    #[test]
    fn students_points_are_the_tables() {
        for (degrees, point) in [(1.0, 12.706), (6.0, 2.447), (11.0, 2.201), (30.0, 2.042), (1e9, 1.960)] {
            assert!((student_95(degrees) - point).abs() < 1e-3, "{degrees}: {}", student_95(degrees));
        }
        let between = student_95(2.5);
        assert!(3.182 < between && between < 4.303);
    }

    /// Logarithms of `n` pairs, drawn around a mean of 0.
    fn drawn(rng: &mut Xoshiro256PlusPlus, n: usize, spread: f64) -> Ratio {
        let normal = Normal::new(0.0, spread).unwrap();
        let ours: Vec<f64> = (0..n).map(|_| normal.sample(rng).exp()).collect();
        paired_ratio(&ours, &vec![1.0; n]).unwrap()
    }

    #[test]
    fn nineteen_intervals_in_twenty_enclose_the_truth_however_few_the_runs() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(20_02);
        for n in [3, 8, 20] {
            let encloses = |ratio: Ratio| ratio.low <= 1.0 && 1.0 <= ratio.high;
            let enclosed = (0..4000).filter(|_| encloses(drawn(&mut rng, n, 0.3))).count();
            assert!((3740..3860).contains(&enclosed), "{n} runs: {enclosed} of 4000");
        }
    }

    #[test]
    fn one_in_twenty_ratios_that_are_the_same_differ_by_chance_and_others_always() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(20_05);
        let apart = (0..4000).filter(|_| differ(&drawn(&mut rng, 8, 0.1), &drawn(&mut rng, 8, 0.2))).count();
        assert!((120..260).contains(&apart), "{apart} of 4000");
        let twice = |ratio: Ratio| Ratio {
            mean: ratio.mean * 2.0,
            low: ratio.low * 2.0,
            high: ratio.high * 2.0,
            ..ratio
        };
        assert!((0..100).all(|_| differ(&drawn(&mut rng, 8, 0.1), &twice(drawn(&mut rng, 8, 0.1)))));
    }
}
