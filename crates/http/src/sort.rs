//! Order of a directory's page by its query, as in Caddy: `?sort=size&order=desc`.

use crate::target::form_field;
use dentree_vfs::{Attr, FileType};

/// Equal rows are ordered by name.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum By {
    #[default]
    Name,
    Size,
    Time,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Sort {
    pub(crate) by: By,
    pub(crate) is_descending: bool,
}

/// Sort value and name.
pub(crate) type Key = (i128, Vec<u8>);

impl By {
    pub(crate) const ALL: [By; 3] = [By::Name, By::Size, By::Time];

    pub(crate) fn word(self) -> &'static str {
        match self {
            By::Name => "name",
            By::Size => "size",
            By::Time => "time",
        }
    }

    /// Rows without the attribute come first.
    pub(crate) fn rank(self, attr: Option<&Attr>) -> i128 {
        match (self, attr) {
            (By::Name, _) => 0,
            (By::Size, Some(attr)) if attr.kind == FileType::Regular => attr.size.into(),
            (By::Size, _) => -1,
            (By::Time, Some(Attr { mtime, .. })) => {
                i128::from(mtime.seconds) * 1_000_000_000 + i128::from(mtime.nanos)
            }
            (By::Time, None) => i128::MIN,
        }
    }
}

impl Sort {
    /// Default: by name.
    pub(crate) fn of(query: &str) -> Self {
        let by = form_field(query, "sort");
        let by = By::ALL.into_iter().find(|known| by.as_deref() == Some(known.word().as_bytes()));
        let is_descending = form_field(query, "order").as_deref() == Some(b"desc");
        Sort { by: by.unwrap_or_default(), is_descending }
    }

    /// Order after a click on a column head: reversed; for another column names ascend, size and
    /// time descend.
    pub(crate) fn click(self, by: By) -> Sort {
        let is_descending = if by == self.by { !self.is_descending } else { by != By::Name };
        Sort { by, is_descending }
    }

    pub(crate) fn fields(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let by = (self.by != By::Name).then_some(("sort", self.by.word()));
        by.into_iter().chain(self.is_descending.then_some(("order", "desc")))
    }

    pub(crate) fn is_before(self, a: &Key, b: &Key) -> bool {
        if self.is_descending { a > b } else { a < b }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_the_way_through_an_address() {
        for by in By::ALL {
            for is_descending in [false, true] {
                let sort = Sort { by, is_descending };
                let query: Vec<String> =
                    sort.fields().map(|(field, value)| format!("{field}={value}")).collect();
                assert_eq!(Sort::of(&query.join("&")), sort);
            }
        }
        assert_eq!(Sort::of("sort=rank&order=up"), Sort::default());
    }

    #[test]
    fn clicks_turn_an_order_around() {
        let by_name = Sort::default();
        let largest = by_name.click(By::Size);
        assert!(largest.is_descending && !largest.click(By::Size).is_descending);
        assert_eq!(largest.click(By::Name), by_name);
    }
}
