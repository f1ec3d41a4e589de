package nexmark_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thalweg/thalweg/internal/nexmark"
	"github.com/thalweg/thalweg/internal/vfs"
	"github.com/thalweg/thalweg/stream/filesink"
)

// filed is a bid in a file of its day and minute.
type filed struct {
	Day, Minute string
	Bid         nexmark.Bid
}

// filedDir is where the files are.
const filedDir = "q10-files"

// Query 10 writes the bids to files by day and minute.
var q10 = query[filed]{
	name: "q10",
	pipeline: func(events input) {
		events.Via(bids).Sink(filesink.Options[int64, nexmark.Bid]{
			Dir:    path.Join(events.files.dir, filedDir),
			FS:     events.files,
			Encode: filesink.JSON[int64, nexmark.Bid](),
			Folder: filesink.ByTime[int64, nexmark.Bid]("2006-01-02/15:04"),
		}.Sink()).As("q10-files")
	},
	rows: func(t testing.TB, n output) (all []filed) {
		for _, name := range filesBelow(t, n.files, path.Join(n.files.dir, filedDir)) {
			folder := strings.Split(strings.TrimPrefix(path.Dir(name), n.files.dir+"/"), "/")
			lines := json.NewDecoder(bytes.NewReader(contentOf(t, n.files, name)))
			for lines.More() {
				row := filed{Day: folder[1], Minute: folder[2]}
				require.NoError(t, lines.Decode(&row.Bid))
				all = append(all, row)
			}
		}
		return all
	},
	answer: func(events []nexmark.Event) (all []filed) {
		for b := range onlyBids(events) {
			at := time.UnixMilli(b.DateTime).UTC()
			all = append(all, filed{at.Format(time.DateOnly), at.Format("15:04"), b})
		}
		return all
	},
	figures: func(rows []filed) []int64 {
		minutes := map[[2]string]bool{}
		for _, r := range rows {
			minutes[[2]string{r.Day, r.Minute}] = true
		}
		return []int64{int64(len(minutes))}
	},
	million: []int64{920_000, 2},
}

// filesBelow are the files in the folders of dir, but those that are not finished.
func filesBelow(t testing.TB, files vfs.FS, dir string) (names []string) {
	inside, err := files.List(dir)
	require.NoError(t, err)
	for _, name := range inside {
		if strings.HasPrefix(name, ".") {
			continue
		}
		name = path.Join(dir, name)
		if _, err := files.Size(name); err == nil {
			names = append(names, name)
		} else {
			require.NotErrorIs(t, err, fs.ErrPermission)
			names = append(names, filesBelow(t, files, name)...)
		}
	}
	return names
}

func contentOf(t testing.TB, files vfs.FS, name string) []byte {
	f, err := files.Open(name)
	require.NoError(t, err)
	defer f.Close()
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	require.Equal(t, len(b), n, err)
	return b
}
