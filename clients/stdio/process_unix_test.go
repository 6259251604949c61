//go:build unix

package stdio

import (
	"strings"
	"testing"
)

func TestTheServersEnvironmentHasNoCredentials(t *testing.T) {
	got := environment([]string{"A=1", "MCPBRIDGE_TOKEN=x", "MCPBRIDGE_ADMIN_TOKEN=y", "MCPBRIDGE_URL=z", "TOKEN=1"})
	if strings.Join(got, " ") != "A=1 MCPBRIDGE_URL=z TOKEN=1" {
		t.Errorf("%q", got)
	}
}
