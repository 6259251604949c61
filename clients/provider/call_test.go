package provider_test

import (
	"encoding/json"
	"strings"
	"testing"

	"mcpbridge/clients/provider"
)

func TestBind(t *testing.T) {
	var in struct {
		N int    `json:"n"`
		S string `json:"s"`
	}
	if err := (&provider.Call{}).Bind(&in); err != nil {
		t.Errorf("no arguments: %v", err)
	}
	if err := (&provider.Call{Arguments: json.RawMessage(`{"n":3,"s":"x","more":1}`)}).Bind(&in); err != nil || in.N != 3 || in.S != "x" {
		t.Errorf("Bind = %+v, %v", in, err)
	}
	if err := (&provider.Call{Arguments: json.RawMessage(`{"n":"three"}`)}).Bind(&in); err == nil || !strings.Contains(err.Error(), `"n"`) {
		t.Errorf("wrong type: %v", err)
	}
	if err := (&provider.Call{Arguments: json.RawMessage(`{`)}).Bind(&in); err == nil {
		t.Error("broken arguments are taken")
	}
}

func TestCallMadeByHandReportsNothing(t *testing.T) {
	c := &provider.Call{WantsProgress: true}
	c.Progress(1, 2, "")
	c.Log("info", "", "x")
}
