//! Lines, drawn by plotters as SVG.
//!
//! plotters writes colours as attributes. It draws those of the light theme; the page's style maps
//! each to its dark one by selecting on the attribute ([`dark_style`]), so that a chart follows the
//! reader's theme without script.

use std::error::Error;
use std::fmt::Write as _;

use plotters::prelude::*;

/// A colour by purpose, in the light and the dark theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ink {
    light: (u8, u8, u8),
    dark: (u8, u8, u8),
}

/// Axes and their numbers.
const TEXT: Ink = Ink { light: (0x4a, 0x50, 0x5a), dark: (0xb4, 0xbb, 0xc6) };
/// Lines of the grid.
const GRID: Ink = Ink { light: (0xe3, 0xe6, 0xea), dark: (0x2e, 0x34, 0x3d) };
/// Schemes for comparison.
pub const PLAIN: Ink = Ink { light: (0xb3, 0xb9, 0xc2), dark: (0x5b, 0x64, 0x70) };
/// The reference: scheme 1.
pub const FIRST: Ink = Ink { light: (0x20, 0x24, 0x2b), dark: (0xee, 0xf1, 0xf5) };
/// The study's choice: scheme 8.
pub const CHOSEN: Ink = Ink { light: (0x1f, 0x6f, 0xc4), dark: (0x6c, 0xb2, 0xff) };
/// Today's kernel: scheme 11.
pub const TODAY: Ink = Ink { light: (0x1c, 0x88, 0x5a), dark: (0x4f, 0xcb, 0x97) };
/// Ours: scheme 12.
pub const OURS: Ink = Ink { light: (0xc9, 0x4a, 0x16), dark: (0xff, 0x96, 0x5c) };
/// Crates' maps.
pub const MAPS: Ink = Ink { light: (0x8a, 0x55, 0xb5), dark: (0xc5, 0x9b, 0xec) };

const ALL: [Ink; 8] = [TEXT, GRID, PLAIN, FIRST, CHOSEN, TODAY, OURS, MAPS];

impl Ink {
    /// A scheme's colour in all charts.
    pub fn of(scheme: &str) -> Self {
        match scheme.split(' ').next() {
            Some("1") => FIRST,
            Some("8") => CHOSEN,
            Some("11") => TODAY,
            Some("12") => OURS,
            Some(number) if number.parse::<u32>().is_ok() => PLAIN,
            _ => MAPS,
        }
    }

    /// In CSS notation.
    pub fn light_hex(self) -> String {
        hex(self.light)
    }

    /// In CSS notation.
    pub fn dark_hex(self) -> String {
        hex(self.dark)
    }

    fn drawn(self) -> RGBColor {
        RGBColor(self.light.0, self.light.1, self.light.2)
    }
}

fn hex((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Rules that map every drawn colour to its dark one.
pub fn dark_style() -> String {
    let mut style = String::new();
    for ink in ALL {
        let (light, dark) = (ink.light_hex(), ink.dark_hex());
        let _ =
            write!(style, "svg [stroke=\"{light}\"]{{stroke:{dark}}}svg [fill=\"{light}\"]{{fill:{dark}}}");
    }
    style
}

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its colour.
    pub ink: Ink,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The quantity.
    pub title: String,
    /// Labels of the positions 0, 1, …; without labels, numbers in powers of two or ten.
    pub words: Vec<&'static str>,
}

impl Axis {
    /// An axis of numbers.
    pub fn numbers(title: &str) -> Self {
        Self { title: title.to_owned(), words: Vec::new() }
    }
}

const SIZE: (u32, u32) = (760, 380);

/// Lines over an axis, with a dot per measured point; the vertical axis is logarithmic. `None` if
/// there is nothing to draw.
pub fn lines(x: &Axis, y_title: &str, series: &[Series], points_measured: bool) -> Option<String> {
    let points = || series.iter().flat_map(|series| &series.points).filter(|(_, y)| *y > 0.0);
    let low = points().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let high = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let (left, right) =
        points().fold((f64::INFINITY, 0.0_f64), |(left, right), (x, _)| (left.min(*x), right.max(*x)));
    (right > left && high > 0.0).then_some(())?;
    let mut svg = String::new();
    let ends = ((left, right), (low / 1.15, high * 1.15));
    draw(&mut svg, x, y_title, series, ends, points_measured).ok()?;
    // The defaults of every element: a sixth of the text.
    Some(svg.replace(" opacity=\"1\"", ""))
}

fn draw(
    svg: &mut String,
    x: &Axis,
    y_title: &str,
    series: &[Series],
    ((left, right), (low, high)): ((f64, f64), (f64, f64)),
    dots: bool,
) -> Result<(), Box<dyn Error>> {
    // Numbers that double are drawn by their logarithms, so that all steps are equally wide.
    let place = |value: f64| if x.words.is_empty() { value.log2() } else { value };
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(place(left)..place(right), (low..high).log_scale())?;
    let text = |size: u32| ("sans-serif", size).into_font().color(&TEXT.drawn());
    let steps =
        if x.words.is_empty() { (place(right) - place(left)).round() as usize + 1 } else { x.words.len() };
    let x_words = |at: &f64| match x.words.get(at.round() as usize) {
        Some(word) => (*word).to_owned(),
        None => format!("{:.0}", at.exp2()),
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.drawn())
        .axis_style(GRID.drawn())
        .x_labels(steps)
        .x_label_formatter(&x_words)
        .y_label_formatter(&|value| short(*value))
        .label_style(text(14))
        .axis_desc_style(text(14))
        .x_desc(x.title.as_str())
        .y_desc(y_title)
        .draw()?;
    // Schemes for comparison first, below the others.
    for emphasised in [false, true] {
        for series in series.iter().filter(|series| (series.ink != PLAIN) == emphasised) {
            let width = if series.ink == OURS { 4 } else { 2 };
            let style = series.ink.drawn().stroke_width(width);
            let points: Vec<_> = series.points.iter().map(|(x, y)| (place(*x), *y)).collect();
            chart.draw_series(LineSeries::new(points.clone(), style))?;
            if dots {
                let dots =
                    points.into_iter().map(|point| Circle::new(point, width, series.ink.drawn().filled()));
                chart.draw_series(dots)?;
            }
        }
    }
    root.present()?;
    drop(chart);
    drop(root);
    Ok(())
}

/// A number in a few characters: `950`, `1.2k`, `34M`.
pub fn short(value: f64) -> String {
    let scaled = |value: f64, unit| {
        if value < 9.95 && (value - value.round()).abs() > 0.04 {
            format!("{value:.1}{unit}")
        } else {
            format!("{value:.0}{unit}")
        }
    };
    match value {
        _ if value >= 999.5e6 => scaled(value / 1e9, "G"),
        _ if value >= 999.5e3 => scaled(value / 1e6, "M"),
        _ if value >= 999.5 => scaled(value / 1e3, "k"),
        _ => scaled(value, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_of_a_chart_has_a_dark_one() {
        let series = [PLAIN, FIRST, CHOSEN, TODAY, OURS, MAPS]
            .map(|ink| Series { ink, points: vec![(1.0, 10.0), (16.0, 20.0)] });
        let svg = lines(&Axis::numbers("clients"), "operations/s", &series, true).unwrap();
        let style = dark_style();
        for part in svg.split("=\"#").skip(1) {
            let colour = &part[..6];
            assert!(style.contains(&format!("=\"#{colour}\"")), "#{colour} stays as it is in the dark");
        }
        assert!(svg.contains("\n16\n") && svg.contains("clients"), "{svg}");
    }

    #[test]
    fn nothing_is_not_drawn() {
        assert_eq!(lines(&Axis::numbers("clients"), "", &[], true), None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.5, 7.0, 950.0, 1234.0, 34e6, 2e9].map(short), ["0.5", "7", "950", "1.2k", "34M", "2G"]);
    }
}
