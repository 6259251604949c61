//go:build race

package e2e

// raceFlag builds the binary as the tests are built.
const raceFlag = "-race"
