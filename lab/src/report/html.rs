//! Text and figures in HTML.

/// Text with HTML's special characters escaped.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A time with a suitable unit.
pub(super) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        _ if nanoseconds < 1e3 => format!("{nanoseconds:.0} ns"),
        _ if nanoseconds < 1e6 => format!("{:.1} µs", nanoseconds / 1e3),
        _ => format!("{:.1} ms", nanoseconds / 1e6),
    }
}
