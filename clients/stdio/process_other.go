//go:build !unix

package stdio

import (
	"errors"
	"io"
)

type server struct {
	stdin          io.WriteCloser
	stdout, stderr io.ReadCloser
	ended          chan struct{}
	status         int
}

func (*server) pid() int { return 0 }
func (*server) stop()    {}
func (*server) forget()  {}

func adopt() {}

func startServer([]string, []string) (*server, error) {
	return nil, errors.New("servers can be run on Unix systems alone")
}

// Supervise is not there: see [Run].
func Supervise([]string) int { return 1 }
