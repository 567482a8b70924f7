//! The owners of each image of a command, read once.

use crate::image::Image;
use dentree_find::Owners;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct OwnersByImage(RefCell<Vec<(Arc<Image>, Rc<Owners>)>>);

impl OwnersByImage {
    pub(crate) fn of(&self, image: &Arc<Image>) -> Rc<Owners> {
        let mut read = self.0.borrow_mut();
        if let Some((_, owners)) = read.iter().find(|(of, _)| Arc::ptr_eq(of, image)) {
            return owners.clone();
        }
        let owners = Rc::new(Owners::of(&image.vfs));
        read.push((image.clone(), owners.clone()));
        owners
    }
}
