package window

// Emit says when a windowed aggregate emits. The zero value is OnClose.
type Emit struct{ kind emitKind }

type emitKind uint8

const (
	emitOnClose emitKind = iota
	emitOnUpdate
)

var (
	// OnClose emits one result per window and key, when the watermark closes
	// the window.
	OnClose = Emit{emitOnClose}

	// OnUpdate emits a result after every change, until the window closes.
	OnUpdate = Emit{emitOnUpdate}
)

// IsOnUpdate tells OnUpdate from OnClose.
func (e Emit) IsOnUpdate() bool { return e.kind == emitOnUpdate }

// String is the name of e.
func (e Emit) String() string {
	if e.IsOnUpdate() {
		return "on update"
	}
	return "on close"
}
