//! Places for items in flight. A place is reused as soon as it is free: memory is that of the busiest moment so far.

#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = Some(thing);
                at
            }
            None => {
                self.places.push(Some(thing));
                // Reserve here, so that `take` never allocates.
                self.free.reserve(self.places.capacity() - self.free.len());
                (self.places.len() - 1) as u32
            }
        }
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    pub(crate) fn take(&mut self, at: u32) -> Option<T> {
        let thing = self.places.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(thing)
    }

    pub(crate) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
