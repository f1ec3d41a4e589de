package codec

import (
	"reflect"
	"strconv"
)

// shape is a Go type as the binary codec sees it: a schema node together with
// where its parts are in memory.
type shape struct {
	node    *node
	typ     reflect.Type
	op      opaque // of an opaque
	offsets []uintptr
	fields  []*shape // of a struct, one per node.fields
	key     *shape
	elem    *shape
}

// shaper makes shapes of the types inside root.
type shaper struct {
	root     reflect.Type
	registry *Registry
	above    []reflect.Type // the types around the current one
}

func (s *shaper) fault(path, reason string) error {
	return &TypeError{Type: s.root.String(), Field: path, Reason: reason}
}

// shapeOf describes t, found at path inside the root. The root itself is
// described by its structure whatever codec it has otherwise, so that a
// Provider can return Struct of itself.
func (s *shaper) shapeOf(t reflect.Type, path string) (*shape, error) {
	if !(t == s.root && len(s.above) == 0) {
		if sh, err := s.ownCodec(t, path); sh != nil || err != nil {
			return sh, err
		}
	}
	for _, a := range s.above {
		if a == t {
			return nil, s.fault(path, "it contains itself, which the binary codec does not follow; register a codec with Use")
		}
	}
	if len(s.above) == maxDepth {
		return nil, s.fault(path, "its types nest deeper than "+strconv.Itoa(maxDepth))
	}
	s.above = append(s.above, t)
	defer func() { s.above = s.above[:len(s.above)-1] }()

	sh := &shape{typ: t, node: &node{}}
	if err := s.structure(sh, t, path); err != nil {
		return nil, err
	}
	sh.node.measure()
	return sh, nil
}

// structure fills sh by the structure of t.
func (s *shaper) structure(sh *shape, t reflect.Type, path string) (err error) {
	n := sh.node
	switch {
	case isTime(t):
		n.kind = kindTime
		return nil
	case isProto(t):
		return s.fault(path, protoReason)
	case t.PkgPath() == "sync":
		return s.fault(path, "a "+t.String()+" is not data")
	}
	switch t.Kind() {
	case reflect.Bool:
		n.kind = kindBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n.kind = kindInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n.kind = kindUint
	case reflect.Float32:
		n.kind = kindFloat32
	case reflect.Float64:
		n.kind = kindFloat64
	case reflect.String:
		n.kind = kindString
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			n.kind = kindBytes
			return nil
		}
		n.kind = kindSlice
		if sh.elem, err = s.shapeOf(t.Elem(), path+"[]"); err != nil {
			return err
		}
		n.elem = sh.elem.node
	case reflect.Array:
		n.length = uint64(t.Len())
		if t.Elem().Kind() == reflect.Uint8 {
			n.kind = kindRaw
			return nil
		}
		n.kind = kindArray
		if sh.elem, err = s.shapeOf(t.Elem(), path+"[]"); err != nil {
			return err
		}
		n.elem = sh.elem.node
	case reflect.Map:
		n.kind = kindMap
		if sh.key, err = s.shapeOf(t.Key(), path+"[key]"); err != nil {
			return err
		}
		if hasPointer(sh.key.node) {
			return s.fault(path, "map keys with pointers in them would not be found again")
		}
		if sh.elem, err = s.shapeOf(t.Elem(), path+"[]"); err != nil {
			return err
		}
		n.key, n.elem = sh.key.node, sh.elem.node
	case reflect.Pointer:
		n.kind = kindPointer
		if sh.elem, err = s.shapeOf(t.Elem(), path); err != nil {
			return err
		}
		n.elem = sh.elem.node
	case reflect.Struct:
		n.kind = kindStruct
		for f := range t.Fields() {
			if f.Name == "_" {
				continue
			}
			fs, err := s.shapeOf(f.Type, path+"."+f.Name)
			if err != nil {
				return err
			}
			sh.offsets = append(sh.offsets, f.Offset)
			sh.fields = append(sh.fields, fs)
			n.fields = append(n.fields, field{name: f.Name, node: fs.node})
		}
	case reflect.Interface:
		return s.fault(path, interfaceReason)
	default:
		return s.fault(path, "the binary codec cannot write a "+t.Kind().String()+"; register a codec with Use")
	}
	return nil
}

// ownCodec returns the shape of a t that is encoded by a codec of its own:
// registered, provided, or its marshaling methods. Otherwise it returns nil.
func (s *shaper) ownCodec(t reflect.Type, path string) (*shape, error) {
	label, op := "", opaque(nil)
	if e, ok := s.registry.lookup(t); ok {
		if e.codec == nil {
			return nil, s.fault(path, "Use was given a nil codec")
		}
		if _, ok := e.codec.(structural); ok {
			return nil, nil // by structure, so that our schema covers it
		}
		label, op = "custom:", e.op
	} else if t.Kind() == reflect.Interface {
		return nil, nil
	} else if c, ok, err := provided(t, s.registry.asInner()); err != nil {
		return nil, s.fault(path, "its Codec method failed: "+err.Error())
	} else if ok {
		if _, ok := c.(structural); ok {
			return nil, nil
		}
		label, op = "custom:", eraseCodec(c, t)
	} else if isComposite(t) {
		if m := marshalOpOf(t); m != nil && !isTime(t) && !isProto(t) {
			label, op = m.kind()+":", m
		}
	}
	if op == nil {
		return nil, nil
	}
	sh := &shape{typ: t, op: op, node: &node{kind: kindOpaque, label: label + t.String()}}
	sh.node.measure()
	return sh, nil
}

// isComposite tells whether marshaling methods decide over the kind.
func isComposite(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Array:
		return true
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8
	}
	return false
}

// hasPointer tells whether two equal values under n may differ by ==.
func hasPointer(n *node) bool {
	switch n.kind {
	case kindPointer:
		return true
	case kindArray:
		return hasPointer(n.elem)
	case kindStruct:
		for _, f := range n.fields {
			if hasPointer(f.node) {
				return true
			}
		}
	}
	return false
}

// pointerFree tells whether memory of type t holds nothing for the garbage
// collector to follow.
func pointerFree(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() == 0 || pointerFree(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if !pointerFree(f.Type) {
				return false
			}
		}
		return true
	}
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
}
