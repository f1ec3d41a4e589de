package stream

// lazily is the constraint of a type parameter that only makes a method generic: it is
// inferred to be *V, and nothing is done with it. The compiler makes the methods of a generic
// type for every type it is used with, called or not, and what they lead to; those of its
// generic methods only where they are called. So a program pays for a step that is large,
// and keeps state in a store of its own, where it has such a step.
type lazily[V any] interface{ *V }
