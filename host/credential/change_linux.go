package credential

import (
	"os"
	"syscall"
	"time"
)

// changeTime is when a file's contents or attributes last changed, where the system tells.
func changeTime(fi os.FileInfo) (t time.Time, known bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(st.Ctim.Unix()), true
}
