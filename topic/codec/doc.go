// Package codec turns typed keys and values into bytes and back.
//
// A codec is chosen once for a type, when a topic or a step is declared, and
// then runs without looking at the type again: no reflection per record (maps
// inside the binary codec and codecs of foreign make inside a struct are the
// exceptions). Codecs may be used by many goroutines at once.
//
// # Which codec a type gets
//
// The first of these that applies:
//
//   - the one registered for exactly this type with [Registry.Use];
//   - the one the type brings itself, see [Provider];
//   - by kind: string, []byte, [N]byte, bool, integers, floats, [time.Time],
//     struct{} (no bytes), and every named type of such a kind;
//   - a pair of methods: MarshalBinary with UnmarshalBinary, else MarshalText
//     with UnmarshalText;
//   - any other struct, array, map, slice or pointer: JSON where others may
//     read it ([Of], [Registry.Of]), the binary codec where only this
//     application does ([Registry.Inner], [Struct]).
//
// A protobuf message, an interface, a function and a channel have no default:
// asking for their codec is an error that says what to do. A type that the
// binary codec cannot hold (an interface field, say) is an error and is never
// written as JSON in its place, since JSON would lose what it cannot name.
// Register [JSON] for such a type if that is what you want.
//
// # What the bytes are
//
// Integers are big-endian and of fixed width (int and uint eight bytes), floats
// big-endian IEEE 754, a bool one byte 0 or 1, strings and bytes themselves:
// what Kafka's own serializers write. A time is twelve bytes that sort as times
// do: the instant to the nanosecond, for any year. Its zone is not kept, and
// what comes back is in UTC, in structs as well. The binary struct codec is described at [Struct] and in format.go.
// What decodes without error encodes back to the same bytes, JSON and
// marshaling methods aside.
//
// # Keys
//
// Two keys are the same key when their encodings are the same bytes. Go's ==
// has no part in it: 0.0 and -0.0 are two keys, a NaN is one key per bit
// pattern, two pointers to equal values are one key, and times that differ in
// their zone only are one key. Ranges over keys follow the bytes: unsigned
// integers, strings and times sort by value, while negative integers come after
// positive ones and floats do not sort at all. A change to a key's type that
// changes its bytes, such as a field added to a struct, makes new keys out of
// old ones; the schemas described at [Struct] are for values.
package codec
